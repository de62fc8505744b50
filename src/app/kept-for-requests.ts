import { join } from 'node:path';

import type { Config } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import { BucketBytes } from '../inference/files/bucket-bytes.ts';
import type { FileBytes } from '../inference/files/file-bytes.ts';
import { Files } from '../inference/files/files.ts';
import { FolderBytes } from '../inference/files/folder-bytes.ts';
import { Idempotency } from '../inference/pipeline/idempotency.ts';
import { KeptItems } from '../inference/pipeline/stored-items.ts';
import type { ServiceMetrics } from '../platform/metrics/service-metrics.ts';
import type { Secret } from '../accounts/secret.ts';
import { TrafficRecorder } from '../inference/pipeline/traffic-recorder.ts';
import { ErrorCounts } from '../inference/pipeline/error-counts.ts';
import { StoreError } from '../store/store-error.ts';
import type { ActiveRequests } from '../inference/pipeline/active-requests.ts';
import type { Log } from '../platform/log.ts';
import type { Store } from './stores.ts';

const tidyItemsEveryMs = 60_000;

export interface KeptOptions {
  readonly config: Config;
  readonly environment: Environment;
  readonly log: Log;
  readonly running: ActiveRequests;
  readonly store: Store;
  readonly secret: Secret;
  readonly now: () => number;
  readonly metrics: () => ServiceMetrics;
  /** Receives what closes each part, as soon as the part is open. */
  readonly opened: (() => unknown)[];
}

/** Opens what is kept of requests: items, answers to replay, files, and what an operator has recorded of the traffic. */
export async function openKept(options: KeptOptions) {
  const { config, log, running, store, secret, now, metrics, opened } = options;
  const { repositories } = store;
  const items = new KeptItems({
    repositories,
    keepDays: config.items.keepDays,
    now,
    failed: (what, code) => log.service({ level: 'warn', event: `items_${what}_failed`, detail: { code } }),
  });
  const idempotency = new Idempotency({
    repositories,
    secret: secret.fingerprints,
    owner: () => store.ledger.replicaId,
    running,
    now,
    counted: (outcome) => metrics().idempotent(outcome),
    failed: (what, code) => log.service({ level: 'warn', event: `idempotency_${what}_failed`, detail: { code } }),
  });
  const errorCounts = new ErrorCounts({
    repositories,
    now,
    failed: (error) =>
      log.service({
        level: 'warn',
        event: 'error_counts_unwritten',
        detail: { code: error instanceof StoreError ? error.code : 'unexpected' },
      }),
  });
  opened.push(() => errorCounts.close());
  const files = openFiles(options);
  opened.push(() => files.close());
  await files.start();

  let tidying: Promise<void> | undefined;
  const tidyItems = setInterval(() => {
    tidying ??= items.tidy().finally(() => (tidying = undefined));
    void idempotency.tidy();
  }, tidyItemsEveryMs);
  tidyItems.unref();
  const stopTidying = (): void => clearInterval(tidyItems);
  opened.push(stopTidying);
  return { items, idempotency, errorCounts, files, traffic: new TrafficRecorder(), stopTidying };
}

/** The files of accounts; without a sweep before `start`. */
export const openFiles = ({ config, environment, log, store, now }: FilesParts): Files =>
  new Files({
    repositories: store.repositories,
    bytes: fileBytes(config, environment),
    bounds: boundsOf(config),
    log: (event, reason) => log.service({ level: 'warn', event, detail: { reason } }),
    now,
  });

type FilesParts = Pick<KeptOptions, 'config' | 'environment' | 'log' | 'store' | 'now'>;

export const boundsOf = ({ files }: Config) => ({ filesMax: files.perAccountMax, bytesMax: files.bytesPerAccountMax });

function fileBytes({ files, storage }: Config, { bucketKeys }: Environment): FileBytes {
  if (files.bucket === undefined) return new FolderBytes(join(storage.directory, 'files'));
  // Reading the configuration has ensured it.
  if (bucketKeys === undefined) throw new Error('the bucket of the files has no keys');
  const { accessKeyId, secretAccessKey, sessionToken } = bucketKeys;
  const keys = { accessKeyId, secretAccessKey: secretAccessKey.reveal(), sessionToken: sessionToken?.reveal() };
  return new BucketBytes({ ...files.bucket, ...keys });
}
