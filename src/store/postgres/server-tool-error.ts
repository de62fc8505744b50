/** pg_dump or pg_restore is missing, too old, or has failed; the message includes its error output. */
export class ServerToolError extends Error {
  override readonly name = 'ServerToolError';
}
