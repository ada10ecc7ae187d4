"""Parts of pages: each draws one thing from a view."""
