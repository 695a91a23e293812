"""The protocol of the quorum, searched whole within small bounds: what is shipped is safe, mutants are found
out.

`interlock lab model` runs the search. `table` has all cases, `search` goes through their states; `numbers`,
`leases` and `beginnings` are the models, and `shipped` and `variants` the rules that they are searched with.
"""
