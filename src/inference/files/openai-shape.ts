import type { ErrorBody } from '../../platform/errors.ts';
import type { FilePage, FileRow } from '../../store/repositories/files.ts';

/** Files, lists and deletions as seen by clients of the OpenAI interface (contracts §1.4). */
export const openAiShape = {
  object: ({ id, bytes, createdAt, expiresAt, name, purpose }: FileRow): object => ({
    id: `file-${id}`,
    object: 'file',
    bytes,
    created_at: seconds(createdAt),
    // Absent rather than null, as in the vendor's schema.
    ...(expiresAt === null ? {} : { expires_at: seconds(expiresAt) }),
    filename: name,
    purpose: purpose ?? 'user_data',
    status: 'processed',
  }),
  list: ({ files, hasMore }: FilePage): object => ({
    object: 'list',
    data: files.map(openAiShape.object),
    first_id: idOf(files[0]),
    last_id: idOf(files.at(-1)),
    has_more: hasMore,
  }),
  deleted: (id: string): object => ({ id: `file-${id}`, object: 'file', deleted: true }),
  encodeError: (error: ErrorBody): string => JSON.stringify({ error }),
};

const seconds = (ms: number): number => Math.floor(ms / 1000);
/** The vendor's schema allows no null here. */
const idOf = (file: FileRow | undefined): string => (file === undefined ? '' : `file-${file.id}`);
