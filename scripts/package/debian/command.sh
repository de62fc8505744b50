#!/bin/sh
# Runs a command for this computer's service, with its unit's configuration and as its user, so that root leaves no files that
# the service cannot write.
set -e
@ENVIRONMENT@
if [ "$(id -u)" = 0 ]; then
	HOME=@STATE@ exec runuser -u @USER@ -- node @PROGRAM@ "$@"
fi
exec node @PROGRAM@ "$@"
