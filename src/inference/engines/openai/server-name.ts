/** Returns the `Host` of requests to a server that is addressed by its IP address and has a name. */
export function hostOf(url: string, serverName: string): string {
  const { port } = new URL(url);
  return port === '' ? serverName : `${serverName}:${port}`;
}
