import type { ErrorBody } from '../../platform/errors.ts';
import type { FilePage, FileRow } from '../../store/repositories/files.ts';

/** Files, lists and deletions as seen by clients of the Anthropic interface (contracts §1.4). */
export const anthropicShape = {
  object: ({ id, bytes, createdAt, expiresAt, name, mediaType }: FileRow): object => ({
    id: `file_${id}`,
    type: 'file',
    filename: name,
    mime_type: mediaType,
    size_bytes: bytes,
    created_at: new Date(createdAt).toISOString(),
    downloadable: true,
    expires_at: expiresAt === null ? null : new Date(expiresAt).toISOString(),
  }),
  /** Both generations of paging: `next_page` for current clients, `has_more` with ids for older ones. */
  list: ({ files, hasMore }: FilePage): object => ({
    data: files.map(anthropicShape.object),
    has_more: hasMore,
    first_id: idOf(files[0]),
    last_id: idOf(files.at(-1)),
    next_page: hasMore ? pageAfter(files.at(-1)) : null,
  }),
  deleted: (id: string): object => ({ id: `file_${id}`, type: 'file_deleted' }),
  encodeError: (error: ErrorBody): string => JSON.stringify({ type: 'error', error, request_id: error.request_id }),
};

const idOf = (file: FileRow | undefined): string | null => (file === undefined ? null : `file_${file.id}`);

/** A position in the list that does not depend on any file still existing. */
function pageAfter(file: FileRow | undefined): string | null {
  return file === undefined ? null : Buffer.from(`${file.createdAt}.${file.id}`).toString('base64url');
}

/** `undefined`: not one of our page tokens. */
export function readPage(page: string): { readonly createdAt: number; readonly id: string } | undefined {
  const [, createdAt, id] =
    /^(\d{1,15})\.([0-9a-f]{32})$/.exec(Buffer.from(page, 'base64url').toString('latin1')) ?? [];
  return createdAt === undefined || id === undefined ? undefined : { createdAt: Number(createdAt), id };
}
