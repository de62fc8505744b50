/**
 * The name or address in a `Host` header, without its port and as a URL has it; `undefined` where it has none. It is of the sender's
 * choosing, and has no character that means something in a header or in a page.
 */
export function hostNameOf(header: string | undefined): string | undefined {
  if (header === undefined || !URL.canParse(`http://${header}`)) return undefined;
  const { hostname } = new URL(`http://${header}`);
  return written.test(header) && plain.test(hostname) ? hostname : undefined;
}

const written = /^(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?$/i;
const plain = /^(?:[\w.-]+|\[[\da-f:]+\])$/;
