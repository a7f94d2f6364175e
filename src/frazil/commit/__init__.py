"""Publishes epochs exactly once: the machine decides (pure), the runner performs."""
