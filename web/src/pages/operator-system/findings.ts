import type { Got } from '../../api/use-api.ts';

export interface Finding {
  /** Its text among those of the area. */
  readonly text:
    | 'findUnserved'
    | 'findBackend'
    | 'findWorse'
    | 'findSource'
    | 'findDisk'
    | 'findConfiguration'
    | 'findJob'
    | 'findWorkers'
    | 'findLog';
  readonly values: Readonly<Record<string, string | number>>;
}

type System = Pick<
  Got<'/v1/admin/system'>,
  'configuration' | 'stores' | 'jobs' | 'workers_ended' | 'log_lines_dropped'
>;
type Backend = Pick<Got<'/v1/admin/backends'>['data'][number], 'model' | 'name' | 'state' | 'ejected' | 'worse'>;
type Source = Pick<Got<'/v1/admin/backend_sources'>['data'][number], 'model' | 'name' | 'problem'>;

/** Less than this is filled by a busy day. */
const freeBytesMin = 1_000_000_000;

/** What an operator has to do something about, the most urgent first. */
export function findingsOf(
  system: System,
  backends: readonly Backend[],
  sources: readonly Source[],
): readonly Finding[] {
  const { configuration, stores, jobs } = system;
  const models = [...new Set(backends.map(({ model }) => model))];
  const unserved = models.filter((model) =>
    backends.filter((backend) => backend.model === model).every(({ state }) => state === 'failed'),
  );
  return [
    ...unserved.map((model): Finding => ({ text: 'findUnserved', values: { model } })),
    ...backends
      .filter(({ model, state, ejected }) => !unserved.includes(model) && (ejected || state === 'failed'))
      .map(({ model, name }): Finding => ({ text: 'findBackend', values: { model, name } })),
    ...backends
      .filter(({ worse }) => worse !== null)
      .map(({ model, name }): Finding => ({ text: 'findWorse', values: { model, name } })),
    ...sources.flatMap(({ model, name, problem }): readonly Finding[] =>
      problem === null ? [] : [{ text: 'findSource', values: { model, name, problem } }],
    ),
    ...(stores.free_bytes !== null && stores.free_bytes < freeBytesMin
      ? [{ text: 'findDisk', values: { gigabytes: Math.floor(stores.free_bytes / 1e8) / 10 } } as const]
      : []),
    ...(configuration.is_in_force ? [] : [{ text: 'findConfiguration', values: {} } as const]),
    ...jobs
      .filter(({ failures }) => failures > 0)
      .map(({ name, failures }): Finding => ({ text: 'findJob', values: { name, n: failures } })),
    ...(system.workers_ended > 0 ? [{ text: 'findWorkers', values: { n: system.workers_ended } } as const] : []),
    ...(system.log_lines_dropped > 0 ? [{ text: 'findLog', values: { n: system.log_lines_dropped } } as const] : []),
  ];
}
