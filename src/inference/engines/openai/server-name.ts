/** The `Host` of requests to a server that is called by its address and known by a name. */
export function hostOf(url: string, serverName: string): string {
  const { port } = new URL(url);
  return port === '' ? serverName : `${serverName}:${port}`;
}
