"""The Wan 2.1 video diffusion transformer, and the Wan 2.2 experts of the same architecture."""
