"""Feed-forward parts as layer shapes: dense MLPs and mixtures of experts."""

from dataclasses import dataclass

from planner.models.spec import LayerShape


@dataclass(frozen=True, slots=True)
class Mlp:
    """A dense MLP.

    matrices : 3 with a gate (SwiGLU, GeGLU), 2 without
    vectors : norms and biases
    """

    hidden: int
    intermediate: int
    matrices: int = 3
    vectors: int = 0

    def shape(self) -> LayerShape:
        """Return the layer's shape."""
        params = self.matrices * self.hidden * self.intermediate + self.vectors
        return LayerShape(
            kind="dense_mlp",
            params_per_layer=params,
            active_params_per_layer=params,
            vector_params=self.vectors,
            intermediate=self.intermediate,
        )


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts with a router, and shared experts that every token visits.

    width : what an expert reads and writes: hidden, or the latent width where experts work in one
    latent_params : projections into and out of that latent width, whole on each GPU
    expert_biases : bias values of one expert
    shared_params : of all shared experts together
    """

    hidden: int
    intermediate: int
    experts: int
    top_k: int
    matrices: int = 3
    width: int | None = None
    latent_params: int = 0
    expert_biases: int = 0
    shared_params: int = 0
    vectors: int = 0

    def shape(self) -> LayerShape:
        """Return the layer's shape: top_k of the routed experts are active."""
        expert = self.matrices * (self.width or self.hidden) * self.intermediate + self.expert_biases
        router = self.hidden * self.experts
        other = router + self.latent_params + self.shared_params + self.vectors
        return LayerShape(
            kind="moe",
            params_per_layer=self.experts * expert + other,
            active_params_per_layer=self.top_k * expert + other,
            vector_params=self.vectors,
            router_params=router,
            unsharded_params=self.latent_params,
            intermediate=self.intermediate,
            experts=self.experts,
            top_k=self.top_k,
            expert_params=expert,
            shared_params=self.shared_params,
        )


def removed_layer() -> LayerShape:
    """Return the shape of a part that was cut out of a layer (Nemotron-NAS)."""
    return LayerShape(kind="none", params_per_layer=0, active_params_per_layer=0)
