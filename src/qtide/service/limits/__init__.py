"""What one caller may take of the service at once: asked before anything of a request is parsed."""
