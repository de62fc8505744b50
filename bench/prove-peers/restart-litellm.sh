# Kills LiteLLM with its database engine, starts it, and waits until it answers. DATABASE_URL: its PostgreSQL.
cd "$(dirname "$0")" || exit 1
[ -f litellm.pid ] && kill -9 "-$(cat litellm.pid)"
setsid sh -c 'echo $$ > litellm.pid; exec litellm --config litellm.yaml --host 127.0.0.1 --port 4000' > litellm.log 2>&1 < /dev/null &
sleep 1
until curl -sf http://127.0.0.1:4000/health/readiness > /dev/null; do sleep 1; done
