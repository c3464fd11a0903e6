------------------------------- MODULE MCNode -------------------------------
(* Bounds for Node: the cfgs choose the sizes.  The system is finite as it is. *)
EXTENDS Node

=============================================================================
