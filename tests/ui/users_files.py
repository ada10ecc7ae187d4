"""Files as a user brings them."""

LLAMA = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
"""A model's config.json."""

GPU = b'extends = "h100-80g-sxm"\nid = "h100-capped"\nname = "H100 at 500 W"\ntdp_w = 500.0\n'
