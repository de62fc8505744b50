import { Secret } from '../secret.ts';
import {
  choice,
  flag,
  group,
  hidden,
  list,
  milliseconds,
  number,
  required,
  seconds,
  text,
  textLike,
} from '../setting.ts';

/** Where the command and its variables name the port that the server listens at. */
export const portMark = '{port}';

/** A server that the service starts and stops itself (docs/decisions/062-managed-servers.md). */
export const managed = group(
  'a server that the service starts and stops itself, in the place of `url`',
  {
    command: required(
      list(text('a word of the command', { example: 'llama-server' }), {
        minItems: 1,
        maxItems: 256,
        description:
          'the program and its arguments, without a shell; `{port}` becomes a free port of this computer, which the server has to listen at',
        example: ['llama-server', '-m', '/models/qwen3-8b.gguf', '--host', '127.0.0.1', '--port', '{port}'],
      }),
    ),
    env: hidden(
      list(
        textLike('^[A-Za-z_][A-Za-z0-9_]{0,127}(=[^\\x00]*)?$', 'a variable', { example: 'CUDA_VISIBLE_DEVICES=0' }),
        {
          maxItems: 256,
          description:
            'its environment variables, as `NAME=value`, or `NAME` for the value that the service has; beside these it gets those of GPUs and libraries, `PATH` and `HOME`, and none of the secrets of the service',
          example: ['CUDA_VISIBLE_DEVICES=0', 'HF_TOKEN'],
        },
      ),
    ),
    start: choice(['on_demand', 'at_start'], 'when it is started: for the first request, or with the service', {
      default: 'on_demand',
      example: 'at_start',
    }),
    start_timeout_seconds: seconds('how long it may take until it is ready; requests wait that long for it', 600),
    idle_stop_minutes: number(
      { exclusiveMinimum: 0, maximum: 100_000 },
      'idle time after which it is stopped until the next request; never when left out',
      { example: 30 },
      (minutes) => milliseconds(minutes, 60_000),
    ),
    sleep: flag(
      'true: a vLLM with `--enable-sleep-mode` is put to sleep instead of being stopped, and its weights wait in the memory of the computer',
      { default: false, example: true },
    ),
    group: textLike(
      '^[ -~]{1,64}$',
      'name of the GPU, or of whatever cannot be used by all at once: servers with the same name share it, and those that do not fit together take turns',
      { example: 'gpu-0' },
    ),
    share: number(
      { exclusiveMinimum: 0, maximum: 1 },
      'the part of its group that it needs, for example 0.45 beside `--gpu-memory-utilization 0.45`; when left out it is what the server is seen to hold, and all of the group until it was started once',
      { example: 0.45 },
      (written) => written,
    ),
  },
  ({ command, env, idleStopMs: idleMs, ...others }, at, { directory, environment, report }) => {
    if (![...command, ...env].some((word) => word.includes(portMark)))
      report(
        [...at, 'command'],
        'the command does not say which port the server listens at; add for example the words --port and {port}, which becomes a free port',
      );
    const variables = env.flatMap((written, index) => {
      const [name = '', ...value] = written.split('=');
      if (/^TOKENHOUSE_/i.test(name)) {
        report([...at, 'env', index], `${name} belongs to the service and is not passed on; remove this line`);
        return [];
      }
      if (written.includes('=')) return [{ name, value: new Secret(value.join('=')) }];
      const inUse = environment.variable(name);
      if (inUse !== undefined) return [{ name, value: new Secret(inUse) }];
      report([...at, 'env', index], `the environment variable ${name} is not set; set it, or write ${name}=value`);
      return [];
    });
    return { ...others, command, variables, idleMs, directory };
  },
);
