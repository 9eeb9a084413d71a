"""Backends behind one seam: `base.Backend`. `registry.backend_of` finds a pool's."""
