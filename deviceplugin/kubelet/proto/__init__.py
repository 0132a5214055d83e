"""The kubelet's two APIs as .proto files of our own, and what protoc makes of them.

`python -m deviceplugin.kubelet.proto` generates anew; with --check it only compares.
"""
