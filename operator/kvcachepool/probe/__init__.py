"""The proof that a pool is shared, correct and worth having: one engine reuses what another computed.

`schedule` decides when and between which members (pure), `sequence` asks the engines, `verdict` judges the answers
(pure), `runner` keeps the background tasks.
"""
