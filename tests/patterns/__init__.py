"""How programs that keep state keep it, each as a short example of ours on this library.

A delayed save, as in Home Assistant; banks of keys, as in salt; a schedule, as in celery beat; facts that expire, as in
ansible. The fifth is a plain mapping: tests/checkpointmanager/cache/test_mapping_of_cpython.py.
"""
