import { randomBytes } from 'node:crypto';

import type { Caller } from '../../accounts/directory.ts';
import { ApiError } from '../../platform/errors.ts';
import type { BatchListRequest, BatchRow } from '../../store/repositories/batch-rows.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import { StoreError } from '../../store/store-error.ts';
import type { Files } from '../files/files.ts';
import { hasEnded } from './anthropic-shape.ts';
import { wires } from './wires.ts';

export type { BatchRow } from '../../store/repositories/batch-rows.ts';

export interface BatchBounds {
  /** Open batches that an account may have. */
  readonly openPerAccountMax: number;
  /** Bytes of the file of a batch. */
  readonly fileBytesMax: number;
  /** Lines that a batch may have. */
  readonly linesMax: number;
  /** How long after its creation lines may begin. */
  readonly windowMs: number;
}

export interface BatchesOptions {
  readonly repositories: Pick<Repositories, 'createBatch' | 'getBatch' | 'listBatches' | 'cancelBatch' | 'deleteBatch'>;
  readonly files: Pick<Files, 'find' | 'remove'>;
  readonly bounds: () => BatchBounds;
  readonly now: () => number;
  /** Called when there may be something to do. */
  readonly changed: () => void;
}

export type BatchRequest = Pick<BatchRow, 'wire' | 'endpoint' | 'metadata' | 'outputExpiresAfterMs' | 'requests'> & {
  /** As the client names it. */
  readonly fileId: string;
};

/** The batches of accounts, as clients see them. Rejects with `ApiError`. */
export class Batches {
  readonly #options: BatchesOptions;

  constructor(options: BatchesOptions) {
    this.#options = options;
  }

  get bounds(): BatchBounds {
    return this.#options.bounds();
  }

  /** Records a batch; its lines are checked afterwards. */
  async create({ account, key }: Caller, request: BatchRequest): Promise<BatchRow> {
    const { repositories, files, bounds, now, changed } = this.#options;
    const { fileId, ...rest } = request;
    const { openPerAccountMax, fileBytesMax, windowMs } = bounds();
    const file = await files.find(account.id, fileId);
    const refused = (message: string): ApiError =>
      new ApiError('unsupported_value', message, { param: 'input_file_id' });
    if (file === undefined) throw refused('The account has no such file.');
    if (file.purpose !== 'batch') throw refused("The file's purpose must be 'batch'.");
    if (file.bytes > fileBytesMax) throw refused(`The file has more than ${fileBytesMax} bytes.`);
    const at = now();
    const batch = {
      ...rest,
      id: randomBytes(16).toString('hex'),
      accountId: account.id,
      keyId: key.id,
      inputFileId: file.id,
      createdAt: at,
      expiresAt: at + windowMs,
    };
    const created = await inWords(() => repositories.createBatch({ batch, openMax: openPerAccountMax }));
    if (created === 'no_file') throw refused('The account has no such file.');
    if (created === 'full')
      throw new ApiError(
        'rate_limit_exceeded',
        `The account has ${openPerAccountMax} batches that are not over, its limit.`,
        {
          retryAfterSeconds: 60,
        },
      );
    changed();
    return created;
  }

  /** `id`: undefined if the client's id has another form. */
  async get(accountId: string, wire: BatchRow['wire'], id: string | undefined): Promise<BatchRow> {
    const { repositories } = this.#options;
    const row = id === undefined ? undefined : await inWords(() => repositories.getBatch({ accountId, id }));
    if (row?.wire !== wire) throw noSuchBatch();
    return row;
  }

  async list(request: BatchListRequest): Promise<{ readonly batches: readonly BatchRow[]; readonly hasMore: boolean }> {
    return await inWords(() => this.#options.repositories.listBatches(request));
  }

  /** Stops a batch. One that is over stays as it is. */
  async cancel({ accountId, id, wire }: BatchRow): Promise<BatchRow> {
    const { repositories, now, changed } = this.#options;
    const readsOn = !wires[wire].isFile;
    const row = await inWords(() => repositories.cancelBatch({ accountId, id, at: now(), readsOn }));
    if (row === undefined) throw noSuchBatch();
    changed();
    return row;
  }

  /** Deletes a batch that has ended, and its results. */
  async remove(row: BatchRow): Promise<void> {
    const { accountId, id, outputFileId } = row;
    if (!hasEnded(row))
      throw new ApiError('unsupported_value', 'The batch has not ended: cancel it first, or wait for its end.', {
        param: 'batch_id',
      });
    const { repositories, files } = this.#options;
    if (outputFileId !== null) await files.remove(accountId, outputFileId);
    await inWords(() => repositories.deleteBatch({ accountId, id }));
  }
}

const noSuchBatch = (): ApiError => new ApiError('http_404', 'Batch not found.', { param: 'batch_id' });

/** A failure of the store in words: no reason, but a hint to retry (reliability S3). */
async function inWords<Value>(act: () => Promise<Value>): Promise<Value> {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    throw new ApiError('internal_error', 'Batches cannot be read or written at the moment.', {
      retryAfterSeconds: 1,
      cause: error,
    });
  }
}
