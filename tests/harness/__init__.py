"""Start and observe what tests, chaos runs and benchmarks run against.

waiting          wait for conditions with a limit
processes        processes of run.py: ports, readiness, signals, exit codes, memory
forking          start functions in forks of one process that has imported the service
failing          run a command of run.py until it reaches a failpoint
postgres_server  a PostgreSQL that is stopped and started again
databases        databases that are dropped at the end
environments     the environment variables of a service on a database and a sandbox
companies        companies with an API key
sandbox          a client of the sandbox's administration
network          a proxy that slows, cuts or silences connections
certificates     certificates and their keys
bodies           request bodies that each schema accepts and rejects
no_json          bodies that no route accepts
world            the simulated world of the state machine
"""
