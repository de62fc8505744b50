import type { TestService } from '../../support/service.ts';
import { exchange } from './raw.ts';
import type { RawAnswer, RawRequest } from './raw.ts';

export const boundary = 'x-a-boundary-of-the-tests';
export const multipartType = `multipart/form-data; boundary=${boundary}`;
/** A client that sends it wants answers of that family (contracts decision 6). */
export const anthropicVersion = ['anthropic-version', '2026-10-21'] as const;

type Content = string | Uint8Array;
type Header = readonly [string, string];

/** A part of a body; `name: undefined` is a field that is no file. */
export const part = (field: string, content: Content, name?: string, headers = ''): Buffer =>
  Buffer.concat([
    Buffer.from(`--${boundary}\r\nContent-Disposition: form-data; name="${field}"`),
    Buffer.from(name === undefined ? '' : `; filename="${name}"`),
    Buffer.from(`\r\n${headers}\r\n`),
    Buffer.from(content),
    Buffer.from('\r\n'),
  ]);

export const end = Buffer.from(`--${boundary}--\r\n`);

export const bodyOf = (...parts: readonly Uint8Array[]): Buffer => Buffer.concat([...parts, end]);

/** A body as the OpenAI clients send it. */
export const uploadBody = (content: Content, name: string): Buffer =>
  bodyOf(part('file', content, name), part('purpose', 'user_data'));

export const uploadRequest = (service: TestService, body: Uint8Array, headers: readonly Header[] = []): RawRequest => ({
  method: 'POST',
  path: '/v1/files',
  headers: [
    ...(headers.some(([name]) => name.toLowerCase() === 'authorization')
      ? []
      : [['Authorization', `Bearer ${service.key}`] as const]),
    ...(headers.some(([name]) => name.toLowerCase() === 'content-type')
      ? []
      : [['Content-Type', multipartType] as const]),
    ...headers,
  ],
  body,
});

export const sendUpload = (
  service: TestService,
  body: Uint8Array,
  headers: readonly Header[] = [],
): Promise<RawAnswer> => exchange(service.url, uploadRequest(service, body, headers));

/** Resolves with the id of the new file; throws when there is none. */
export async function upload(service: TestService, content: Content, name: string): Promise<string> {
  const answer = await sendUpload(service, uploadBody(content, name));
  const { id } = answer.json();
  if (typeof id !== 'string') throw new Error(answer.body);
  return id;
}

export const askFiles = (
  service: TestService,
  path = '',
  headers: readonly Header[] = [],
  method = 'GET',
): Promise<RawAnswer> =>
  exchange(service.url, {
    method,
    path: `/v1/files${path}`,
    headers: [['Authorization', `Bearer ${service.key}`], ...headers],
  });

/** Names of all files of the first account, newest first. */
export async function fileNames(service: TestService): Promise<readonly string[]> {
  const { data } = (await askFiles(service)).json() as { data: { filename: string }[] };
  return data.map(({ filename }) => filename);
}
