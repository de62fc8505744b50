#!/bin/sh
# The command of this computer's service: with the configuration of its unit, and as its user, so that root leaves no files that
# the service cannot write.
set -e
@ENVIRONMENT@
if [ "$(id -u)" = 0 ]; then
	HOME=@STATE@ exec runuser -u @USER@ -- node @PROGRAM@ "$@"
fi
exec node @PROGRAM@ "$@"
