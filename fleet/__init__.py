"""The daemon beside the real programs of a Kubernetes node: containerd with NRI, runc, pods."""
