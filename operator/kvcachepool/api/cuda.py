"""`spec.cuda`: which CUDA the engines are built for."""

from typing import Annotated

from kvcachepool.api.base import ApiModel
from kvcachepool.api.rules import Matching


class Cuda(ApiModel):
    """Counts for engines on NVIDIA GPUs only."""

    version: Annotated[
        str,
        Matching(r"^(auto|[0-9]{2}(\.[0-9]{1,2})?)$", "auto or a CUDA version such as 13 or 12.9", max_length=5),
    ] = "auto"
    """CUDA of the engine image. `auto` reads it from the image's tag or, without spec.engines.image, takes the newest
    build that all matching nodes can run. Required with an image whose tag does not tell."""
    allow_forward_compat: bool = False
    """Accept nodes with an older driver on which the image's cuda-compat package can run this CUDA: data-centre GPUs
    only, so that spec.engines.gpu.product must be given."""
