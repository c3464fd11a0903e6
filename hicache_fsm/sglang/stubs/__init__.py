"""Import-time stand-ins for device packages, put on ``PYTHONPATH`` ahead of everything else.

SGLang imports these while its modules load, before any plugin can run. A stand-in lets the import
pass and raises its own name as soon as it is asked to compute.
"""
