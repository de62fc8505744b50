/**
 * The name or address in a `Host` header, without its port and in the form of a URL; undefined if it has none. The sender chooses
 * it, but it has no character that is special in a header or in HTML.
 */
export function hostNameOf(header: string | undefined): string | undefined {
  if (header === undefined || !URL.canParse(`http://${header}`)) return undefined;
  const { hostname } = new URL(`http://${header}`);
  return written.test(header) && plain.test(hostname) ? hostname : undefined;
}

const written = /^(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?$/i;
const plain = /^(?:[\w.-]+|\[[\da-f:]+\])$/;
