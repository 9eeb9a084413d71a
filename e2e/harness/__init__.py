"""What demo, benches and cluster tests share: kubectl with patience, installation, pools of tiny engines."""
