import { randomBytes } from 'node:crypto';

import { batchIdOf } from '../../platform/ids/batch-id.ts';
import type { BatchRow } from '../../store/repositories/batch-rows.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import type { Files } from '../files/files.ts';
import { printedLines } from './results.ts';
import { wires } from './wires.ts';

interface FinishServices {
  readonly repositories: Pick<Repositories, 'getBatch' | 'planOutput' | 'listLineResults' | 'endBatch'>;
  readonly files: Pick<Files, 'upload' | 'remove'>;
  readonly now: () => number;
}

/** Writes the files of a batch's results, and ends it. */
export async function finish(
  { id, accountId }: BatchRow,
  owner: Uint8Array,
  { repositories, files, now }: FinishServices,
  signal: AbortSignal,
): Promise<void> {
  const batch = await repositories.getBatch({ accountId, id });
  if (batch === undefined) return;
  // What a process that died here has written, whole or in part.
  for (const fileId of [batch.outputFileId, batch.errorFileId])
    if (fileId !== null) await files.remove(accountId, fileId);
  const { print, filesOf } = wires[batch.wire];
  const planned = filesOf(batch).map((file) => ({ ...file, id: randomBytes(16).toString('hex') }));
  const idOf = (kind: 'output' | 'error') => planned.find((file) => file.kind === kind)?.id ?? null;
  if (!(await repositories.planOutput({ id, owner, outputFileId: idOf('output'), errorFileId: idOf('error') }))) return;
  for (const { id: fileId, kind, which } of planned) {
    const facts = {
      name: `${batchIdOf(batch)}_${kind}.jsonl`,
      purpose: 'batch_output',
      expiresAfterMs: batch.outputExpiresAfterMs ?? undefined,
    };
    const source = printedLines(batch, which, print, repositories);
    // Results are owed, whatever else the account keeps.
    const own = { id: fileId, bounds: { filesMax: Infinity, bytesMax: Infinity } };
    await files.upload(accountId, 0, source, () => Promise.resolve(facts), signal, own);
  }
  await repositories.endBatch({ id, owner, status: endOf(batch), at: now() });
}

function endOf({ cancellingAt, requests, completed, errored }: BatchRow): 'completed' | 'expired' | 'cancelled' {
  if (cancellingAt !== null) return 'cancelled';
  return completed + errored < requests ? 'expired' : 'completed';
}
