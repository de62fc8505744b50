/** pg_dump or pg_restore is missing, too old, or has failed; the message has its own words. */
export class ServerToolError extends Error {
  override readonly name = 'ServerToolError';
}
