# Kills new-api or one-api (PROGRAM), starts it, and waits until it answers. SQL_DSN: its PostgreSQL.
cd "$(dirname "$0")" || exit 1
[ -f new-api.pid ] && kill -9 "$(cat new-api.pid)"
MEMORY_CACHE_ENABLED=true ENFORCE_INCLUDE_USAGE=true PORT=3000 "$PROGRAM" --log-dir logs > new-api.log 2>&1 < /dev/null &
echo $! > new-api.pid
until curl -sf http://127.0.0.1:3000/api/status > /dev/null; do sleep 1; done
