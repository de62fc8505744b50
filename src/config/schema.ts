import { defaultModels } from './defaults.ts';
import type { SchemaNode } from '../platform/schema-node.ts';
import { placeInFile } from './sections/backends.ts';
import { models, type ModelConfig } from './sections/models.ts';
import { accounts, invoices, payments, paymentsInUse, plans } from './sections/money.ts';
import { images, mail, webhooks } from './sections/outbound.ts';
import { server } from './sections/server.ts';
import { signIn } from './sections/sign-in.ts';
import { batches, files, items, retention, storage, type StorageConfig } from './sections/storage.ts';
import { telemetry } from './sections/telemetry.ts';
import { group, type Reading, type Setting, type ValueOf } from './setting.ts';

/**
 * Everything that `tokenhouse.yaml` decides: each setting is declared once, in a section. Error messages, the file that `init`
 * writes, `config show`, docs/configuration.md, the schema for editors, the type of the configuration and what a reload may change
 * are derived from it. `scriptSchema` describes one script of a `scripted` backend; that engine owns it.
 */
export const configSetting = (scriptSchema: SchemaNode = {}) =>
  group(
    'the settings of a Tokenhouse service',
    {
      server,
      storage,
      accounts,
      plans,
      images,
      items,
      retention,
      files,
      batches,
      mail,
      payments,
      invoices,
      webhooks,
      sign_in: signIn,
      telemetry,
      models: orDefault(models(scriptSchema), defaultModels),
    },
    (values, at, reading) => {
      const { host, publicUrl } = values.server.account;
      const isReached =
        publicUrl !== undefined || values.server.inference.publicUrl !== undefined || !isLoopbackName(host);
      const workers = workersOn(values.storage, values.server.workers, reading);
      if (workers > 1) refuseManyWorkers(workers, values.models, reading);
      return {
        ...values,
        server: { ...values.server, workers },
        payments: paymentsInUse(values.payments, isReached, [...at, 'payments'], reading),
      };
    },
  );

/** The same as plain JSON. */
export const configSchema = (scriptSchema?: SchemaNode): SchemaNode => ({
  ...configSetting(scriptSchema).schema,
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title: 'tokenhouse.yaml',
});

export type ConfigInFile = ValueOf<ReturnType<typeof configSetting>>;

const orDefault = <Value>(setting: Setting<Value>, byDefault: unknown): Setting<Value> => ({
  ...setting,
  read: (written = byDefault, at, reading) => setting.read(written, at, reading),
});

const isLoopbackName = (host: string): boolean => /^(localhost|127\.\d+\.\d+\.\d+|::1|\[::1\])$/i.test(host);

const isAutomatic = ({ textOf }: Reading): boolean => textOf(['server', 'workers']) === 'auto';

/** The number of workers: one process owns a SQLite file, several can share a PostgreSQL database. */
function workersOn(storage: StorageConfig, workers: number, reading: Reading): number {
  if (storage.type === 'postgres') return workers;
  if (workers === 1 || isAutomatic(reading)) return 1;
  reading.report(
    ['server', 'workers'],
    `workers is ${workers}, and the storage is SQLite, which one process owns; write workers: 1, or move to PostgreSQL, where ` +
      'workers are replicas of each other: `tokenhouse db copy` takes everything there (docs/one-machine-to-many.md)',
  );
  return 1;
}

/** Refuses what does not work with several processes: an embedded model, or a backend that takes fewer requests than there are workers. */
function refuseManyWorkers(workers: number, list: readonly ModelConfig[], reading: Reading): void {
  const { report } = reading;
  const isAuto = isAutomatic(reading);
  const here = isAuto ? `${workers}, one for each processor of this computer` : String(workers);
  const managed = list.find(({ backends }) => backends.some((each) => each.engine === 'openai' && each.managed));
  if (managed !== undefined)
    report(
      ['server', 'workers'],
      `workers is ${here}, and the service starts the server of ${managed.id} (managed), so each worker would start one; write workers: 1, or ` +
        'start it otherwise and write its url',
    );
  const embedded = list.find(({ backends }) => backends.some(({ engine }) => engine === 'llama'));
  if (embedded !== undefined)
    report(
      ['server', 'workers'],
      `workers is ${here}, and ${embedded.id} runs embedded (engine: llama), so each worker would load it and compete for ` +
        'the processors; write workers: 1, or run the model in a llama-server of its own and name that as a backend (engine: openai, flavor: llama-server)',
    );
  // An adapter has the backends of its base.
  for (const [index, model] of list.filter(({ adapterOf }) => adapterOf === undefined).entries()) {
    const { backends, sources } = model;
    const inFile = [
      ...backends.map((backend, listed) => ({ backend, place: placeInFile(model, listed) })),
      ...sources.map(({ template: backend, place }) => ({ backend, place })),
    ];
    for (const { backend, place } of inFile) {
      if (backend.engine !== 'openai' || (backend.concurrencyMax ?? workers) >= workers) continue;
      report(
        ['models', index, 'backends', place, 'max_concurrency'],
        `max_concurrency is ${backend.concurrencyMax} and workers is ${here}: the workers share it, and each needs at least one; raise it to ${workers}, or lower workers`,
      );
    }
  }
}
