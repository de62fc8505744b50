import Type from 'typebox';

import type { BackendConfig, Config } from '../../config/config.ts';
import { figureOf, figuresOf, sumOfFigures } from '../../platform/metrics/figures.ts';
import { notThere } from '../input.ts';
import { route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import type { BackendState, SharedMemory } from '../../config/backend-state.ts';
import { qualityObject, qualitySchema, worseObject, worseSchema } from '../backend-quality.ts';
import { shownPlace } from '../../config/sections/storage.ts';
import type { SystemReading } from '../services.ts';
import { nullable, page, secondsOf, wholeListSchema } from '../wire.ts';

const count = (description?: string) => Type.Integer(description === undefined ? {} : { description });

/** The state of the service, for its operator: the figures are those of `/metrics`. */
export const systemRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/admin/system',
    operationId: 'getSystem',
    tag: 'Server',
    summary: 'How the service does',
    description:
      'Its version, where it keeps what, and its load now. The figures are those of `/metrics`; with several workers they are of all of them.',
    access: 'operator',
    answers: [
      {
        status: 200,
        description: 'The service.',
        schema: Type.Object({
          object: Type.Literal('system'),
          at: count('When these figures were read, in Unix seconds.'),
          version: Type.String(),
          node: Type.String({ description: 'Version of Node.js.' }),
          started_at: count('Unix seconds.'),
          workers: count('Processes that answer requests.'),
          workers_ended: count('Workers that ended unexpectedly and were restarted.'),
          account_url: Type.String(),
          inference_url: nullable(Type.String()),
          configuration: Type.Object({
            file: nullable(Type.String({ description: 'null: there is none, and the defaults are in use.' })),
            version: count('Configurations that took effect since the start.'),
            is_in_force: Type.Boolean({ description: 'false: the file that was read last was refused.' }),
            failures: count('Refused since the start.'),
          }),
          stores: Type.Object({
            database: Type.Enum(['sqlite', 'postgres']),
            database_location: Type.String({ description: 'Without user and password.' }),
            database_bytes: nullable(count('null: not a file.')),
            free_bytes: nullable(count('That the disk of the database may still take; null: not a file.')),
            files: Type.String({ description: 'A folder, or the name of a bucket.' }),
          }),
          mail: Type.Enum(['smtp', 'outbox'], { description: '`outbox`: mail is not sent, and is read here.' }),
          payments: nullable(Type.Enum(['demo', 'stripe'])),
          plans: Type.Array(Type.String({ description: 'Names of plans that accounts can have.' })),
          requests_running: count(),
          holds_open: count('Requests with a credit hold.'),
          held_microcents: count(),
          settlements_waiting: count('Settlements that are not yet durable.'),
          body_bytes: count('Bytes of request bodies in memory.'),
          open_sockets: Type.Object({ inference: count(), account: count() }),
          resident_memory_bytes: count('Of all processes, without those of embedded engines.'),
          event_loop_delay_seconds: Type.Number({ description: 'The longest of the last 15 s, of any process.' }),
          log_lines_dropped: count(),
          jobs: Type.Array(
            Type.Object({
              name: Type.String(),
              last_success_at: nullable(count('Unix seconds; null: none since the start.')),
              failures: count('Since the start.'),
            }),
          ),
        }),
      },
    ],
    handle: async ({ services, headers }) => {
      const reading = await services.system?.();
      if (reading === undefined) throw notThere();
      return {
        object: 'system',
        at: secondsOf(Date.now()),
        node: process.versions.node,
        account_url: services.accountUrl(),
        inference_url: services.inferenceUrl?.(headers.host) ?? null,
        payments: services.payments === undefined ? null : services.demo === undefined ? 'stripe' : 'demo',
        ...configured(services.config(), reading),
        ...loadOf(reading),
      };
    },
  }),
  route({
    method: 'get',
    path: '/v1/admin/backends',
    operationId: 'listBackends',
    tag: 'Server',
    summary: 'List the backends',
    description:
      'Where each model is served, and how its backends do. With several workers, a backend is ready when it is ready in all of them.',
    access: 'operator',
    answers: [
      {
        status: 200,
        description: 'All backends.',
        schema: wholeListSchema(
          Type.Object({
            object: Type.Literal('backend'),
            model: Type.String(),
            name: Type.String(),
            state: Type.Enum(['starting', 'ready', 'sleeping', 'stopped', 'failed'], {
              description: '`sleeping`, `stopped`: a server that the service starts when it is asked for.',
            }),
            detail: nullable(Type.String({ description: 'What its engine says of its state.' })),
            engine: nullable(Type.Enum(['llama', 'openai', 'scripted'], { description: '`llama`: in this process.' })),
            url: nullable(Type.String({ description: 'Of a server.' })),
            zdr: Type.Boolean({ description: 'It retains nothing of a request.' }),
            running: count('Requests that run there.'),
            max_concurrency: nullable(count('Requests that it takes at once; null: all, in a queue of its own.')),
            waiting: nullable(
              count('Answers that wait for a slot of the embedded engine; null: it has no such queue.'),
            ),
            model_waiting: count('Requests in the wait queue of its model.'),
            ejected: Type.Boolean({ description: 'It is left out, because it has failed requests.' }),
            ejected_until: nullable(count('When it is tried again, in Unix seconds.')),
            ejections: count('How often it was left out since the start.'),
            failures: count('Requests that it failed in a row.'),
            prompt_tokens_per_second: nullable(
              count('How fast it reads prompts; null: not measured, as where there is one backend.'),
            ),
            cache_tokens: nullable(
              count('Tokens that its prompt cache holds; null: its server does not say, or was not asked.'),
            ),
            foreign_running: nullable(
              count('Requests at its server that this service did not send; null: as for `cache_tokens`.'),
            ),
            memory: Type.Union(
              [
                Type.Object({
                  state: Type.Enum(['unloaded', 'waiting', 'loading', 'loaded'], {
                    description: '`waiting`: for other models to make room.',
                  }),
                  bytes: Type.Union([Type.Number(), Type.Null()], {
                    description: 'What the model takes when it is loaded.',
                  }),
                }),
                Type.Null(),
              ],
              { description: 'Of a model in the embedded engine; null otherwise.' },
            ),
            shared_memory: Type.Union(
              [
                Type.Object({
                  group: Type.String(),
                  declared: Type.Union([Type.Number(), Type.Null()], {
                    description: 'The part of the group that the configuration says; null: what was learned decides.',
                  }),
                  learned: Type.Union(
                    [
                      Type.Object({
                        on: Type.Enum(['gpu', 'memory']),
                        bytes: Type.Number({ description: 'The most that it was seen to hold.' }),
                        of_bytes: Type.Number({ description: 'How much of it there is.' }),
                      }),
                      Type.Null(),
                    ],
                    { description: 'null: it was not seen yet, or cannot be seen; without `declared` it gets all.' },
                  ),
                  exceeds: Type.Boolean({ description: 'It was seen to hold more than is declared.' }),
                  doubted: Type.Boolean({
                    description: 'It failed beside others with what was learned, so it gets all of the group.',
                  }),
                }),
                Type.Null(),
              ],
              {
                description:
                  'Of a server that the service starts, and that shares a GPU or the memory; null otherwise.',
              },
            ),
            tokens_per_second: Type.Union([Type.Number(), Type.Null()], {
              description: 'Speed of one answer of the embedded engine, once it was measured.',
            }),
            last_five_minutes: qualitySchema(),
            last_hour: qualitySchema(),
            worse: worseSchema(),
          }),
        ),
      },
    ],
    handle: async ({ services }) => {
      const states = (await services.backends?.()) ?? [];
      const figures = (await services.system?.())?.figures ?? [];
      return page(states.map((state) => backendObject(state, services.config(), figures)));
    },
  }),
  route({
    method: 'post',
    path: '/v1/admin/backends/checks',
    operationId: 'checkBackends',
    tag: 'Server',
    summary: 'Check the servers of the backends',
    description:
      'Asks each server, as a start and `tokenhouse doctor` do: whether it answers, accepts the key, has the model, and is what the configuration says. Takes up to three seconds where one is silent.',
    access: 'operator',
    answers: [
      {
        status: 200,
        description: 'One entry for each server; models that this process runs itself have none.',
        schema: wholeListSchema(
          Type.Object({
            object: Type.Literal('backend_check'),
            model: Type.String(),
            name: Type.String(),
            url: Type.String(),
            state: Type.Enum(['ready', 'wrong', 'down'], {
              description: '`wrong`: it answers, and is not what the configuration says.',
            }),
            problem: nullable(Type.String()),
          }),
        ),
      },
    ],
    handle: async ({ services }) =>
      page(
        ((await services.lookAtBackends?.()) ?? []).map(({ model, backend, url, state, problem }) => ({
          object: 'backend_check',
          model,
          name: backend,
          url,
          state,
          problem,
        })),
      ),
  }),
  route({
    method: 'post',
    path: '/v1/admin/backends/claims',
    operationId: 'testBackend',
    tag: 'Server',
    summary: 'Test whether a server does what the card says',
    description:
      'Sends it some twenty short requests, as `tokenhouse doctor --claims` does: a tool call, an answer by a schema, an image and the like. Takes as long as its answers do, up to minutes; nobody is charged. One server is tested at a time.',
    access: 'operator',
    body: Type.Object(
      {
        model: Type.String({ minLength: 1, maxLength: 128 }),
        backend: Type.String({ minLength: 1, maxLength: 128, description: 'Its name in the configuration.' }),
      },
      { additionalProperties: false },
    ),
    answers: [
      {
        status: 200,
        description: 'One entry for each promise that was tested.',
        schema: wholeListSchema(
          Type.Object({
            object: Type.Literal('claim_check'),
            claim: Type.String(),
            what: Type.String({ description: 'What the card says that it does.' }),
            state: Type.Enum(['kept', 'broken', 'unknown']),
            found: nullable(Type.String({ description: 'What was found instead, or why nothing could be found.' })),
          }),
        ),
      },
    ],
    errors: ['http_404', 'http_409'],
    handle: async ({ services, body, signal }) => {
      const claims = await services.lookAtClaims?.(body, signal);
      if (claims === undefined) throw notThere();
      return page(claims.map((claim) => ({ object: 'claim_check', ...claim })));
    },
  }),
];

function configured(config: Config, { version, startedAt, configuration, disk }: SystemReading) {
  const { storage, files, mail, plans, file } = config;
  return {
    version,
    started_at: secondsOf(startedAt),
    configuration: {
      file: file ?? null,
      version: configuration.version,
      is_in_force: configuration.lastSuccess,
      failures: configuration.failures,
    },
    stores: {
      database: storage.type,
      database_location: shownPlace(storage),
      database_bytes: disk?.bytes ?? null,
      free_bytes: disk?.freeBytes ?? null,
      files: files.bucket === undefined ? storage.directory : files.bucket.name,
    },
    mail: mail.smtp === undefined ? 'outbox' : 'smtp',
    plans: plans.map(({ name }) => name),
  };
}

function loadOf({ figures, jobs }: SystemReading) {
  const figure = (name: string, ...labels: readonly string[]): number => figureOf(figures, name, ...labels) ?? 0;
  const largest = (name: string): number => Math.max(0, ...figuresOf(figures, name));
  const sum = (name: string): number => figuresOf(figures, name).reduce((total, one) => total + one, 0);
  return {
    workers: figure('tokenhouse_workers'),
    workers_ended: figure('tokenhouse_workers_ended_total'),
    requests_running: figure('tokenhouse_requests_running'),
    holds_open: figure('tokenhouse_holds_open'),
    held_microcents: figure('tokenhouse_held_microcents'),
    settlements_waiting: figure('tokenhouse_settlements_waiting'),
    body_bytes: figure('tokenhouse_body_bytes'),
    open_sockets: {
      inference: figure('tokenhouse_open_sockets', 'inference'),
      account: figure('tokenhouse_open_sockets', 'account'),
    },
    resident_memory_bytes: sum('process_resident_memory_bytes'),
    event_loop_delay_seconds: largest('tokenhouse_event_loop_delay_seconds'),
    log_lines_dropped: figure('tokenhouse_log_lines_dropped_total'),
    jobs: jobs.map(({ name, lastSuccessSeconds, failures }) => ({
      name,
      last_success_at: lastSuccessSeconds === 0 ? null : Math.floor(lastSuccessSeconds),
      failures,
    })),
  };
}

function backendObject(state: BackendState, { models }: Config, figures: SystemReading['figures']) {
  const { modelId, label, ejectedForMs, residence, shared } = state;
  const written: BackendConfig | undefined = models
    .find(({ id }) => id === modelId)
    ?.backends.find(({ name }) => name === label);
  const figure = (name: string): number | undefined => figureOf(figures, `tokenhouse_backend_${name}`, modelId, label);
  return {
    object: 'backend' as const,
    model: modelId,
    name: label,
    state: state.state,
    detail: state.detail,
    engine: written?.engine ?? null,
    url: written?.engine === 'openai' && written.managed === undefined ? written.url : null,
    zdr: written?.zdr ?? false,
    running: figure('running') ?? 0,
    max_concurrency: state.runningMax,
    waiting: figure('waiting') ?? null,
    model_waiting: sumOfFigures(figures, 'tokenhouse_model_waiting', modelId),
    ejected: (figure('ejected') ?? 0) > 0,
    ejected_until: ejectedForMs === null ? null : secondsOf(Date.now() + ejectedForMs),
    ejections: figure('ejections_total') ?? 0,
    failures: state.failures,
    prompt_tokens_per_second: state.promptTokensPerSecond,
    cache_tokens: figure('cache_tokens') ?? null,
    foreign_running: figure('foreign_running') ?? null,
    memory: residence === undefined ? null : { state: residence.state, bytes: residence.memoryBytes ?? null },
    shared_memory: shared === undefined ? null : sharedObject(shared),
    tokens_per_second: roundedSpeed(residence?.tokensPerSecond),
    last_five_minutes: qualityObject(state.quality?.fiveMinutes),
    last_hour: qualityObject(state.quality?.hour),
    worse: worseObject(state.worse ?? undefined),
  };
}

const sharedObject = ({ group, declared, learned, exceeds, isDoubted }: SharedMemory) => ({
  group,
  declared: declared ?? null,
  learned: learned === undefined ? null : { on: learned.on, bytes: learned.bytes, of_bytes: learned.ofBytes },
  exceeds,
  doubted: isDoubted,
});

const roundedSpeed = (tokensPerSecond: number | undefined): number | null =>
  tokensPerSecond === undefined ? null : Math.round(tokensPerSecond * 10) / 10;
