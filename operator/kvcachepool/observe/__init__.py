"""What the cluster and the running parts say; gathered here, judged in `status`."""
