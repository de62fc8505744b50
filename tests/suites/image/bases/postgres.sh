# What the image of PostgreSQL does with the variables that deploy/compose/replicas.yaml gives it.
set -e
install -d -o postgres -g postgres -m 700 "$PGDATA"
cp "$POSTGRES_PASSWORD_FILE" /tmp/password && chown postgres /tmp/password
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
if [ ! -e "$PGDATA/PG_VERSION" ]; then
	as initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --encoding=UTF8 --locale=C --auth-host=scram-sha-256 --auth-local=trust
	as pg_ctl --wait --options='-c listen_addresses=' start
	as createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
	as pg_ctl --wait stop
	echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
fi
exec setpriv --reuid=postgres --regid=postgres --clear-groups postgres -c 'listen_addresses=*'
