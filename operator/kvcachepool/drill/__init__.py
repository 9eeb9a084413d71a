"""Drills: break a part of a running pool on purpose, while requests run and every answer is compared.

A drill passes when no request fails on an engine that was not itself killed, no answer differs from a recomputed one,
and reuse works again afterwards. How long requests were held up is measured against the same loop without a fault.
"""
