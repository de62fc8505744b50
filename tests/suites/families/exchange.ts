import { RawClient, newRequestId } from '../../support/raw-client.ts';
import type { TestService } from '../../support/service.ts';
import type { Asked, Family } from './families.ts';

/** An answer of a family, read whole. */
export interface FamilyAnswer {
  readonly id: string;
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

interface Options {
  readonly key?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Asks on a family, under an id of its own. */
export async function ask(
  service: TestService,
  family: Family,
  asked: Asked,
  { key = service.key, headers = {} }: Options = {},
): Promise<FamilyAnswer> {
  const id = newRequestId();
  const response = await fetch(`${service.url}${family.path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      'x-request-id': id,
      ...family.headers,
      ...headers,
    },
    body: JSON.stringify(family.body(asked)),
  });
  return { id, status: response.status, headers: response.headers, text: await response.text() };
}

/** The same over a socket that can do anything. */
export async function askRaw(
  service: TestService,
  family: Family,
  asked: Asked,
  { key = service.key, keepsBytes = true, headers: more = {} }: Options & { readonly keepsBytes?: boolean } = {},
): Promise<{ readonly client: RawClient; readonly id: string }> {
  const id = newRequestId();
  const client = await RawClient.connect(service.url, { keepsBytes });
  const json = JSON.stringify(family.body(asked));
  const headers = Object.entries({
    host: 'test',
    authorization: `Bearer ${key}`,
    'x-request-id': id,
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(json)),
    ...family.headers,
    ...more,
  });
  client.send(
    `POST ${family.path} HTTP/1.1\r\n${headers.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${json}`,
  );
  return { client, id };
}

/** One turn of a user. */
export const say = (text: string, more: Partial<Asked> = {}): Asked => ({
  model: 'demo',
  turns: [{ role: 'user', text }],
  ...more,
});

/** The body of an answer that came as chunks, or with its length. */
export function bodyOf(client: RawClient): string {
  const [head = '', ...rest] = client.text.split('\r\n\r\n');
  const body = rest.join('\r\n\r\n');
  return /transfer-encoding: chunked/i.test(head) ? body.replaceAll(/\r?\n?[0-9a-f]+\r\n/g, '') : body;
}
