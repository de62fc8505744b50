/** Images go with the request; other files are uploaded through the files API, and end by themselves. */
import { ApiFailure } from '../../api/client.ts';
import type { Attachment } from './conversation.ts';
import { at, stringAt } from './families/family.ts';
import { Unreachable } from './run.ts';

/** What models take; the host checks the bytes. */
export const imageTypes: readonly string[] = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
/** A body has 50 MB at most, and base64 makes a third more of an image. */
export const imageBytesMax = 20_000_000;
const fileSeconds = 3600;

export async function readImage(file: File): Promise<Attachment> {
  const url = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener('load', () => resolve(String(reader.result)));
    reader.addEventListener('error', () => reject(reader.error ?? new Error(file.name)));
    reader.readAsDataURL(file);
  });
  return { kind: 'image', name: file.name, mediaType: file.type, base64: url.slice(url.indexOf(',') + 1) };
}

export async function upload(file: File, url: string, secret: string): Promise<Attachment> {
  const form = new FormData();
  form.append('purpose', 'user_data');
  form.append('expires_after[anchor]', 'created_at');
  form.append('expires_after[seconds]', String(fileSeconds));
  form.append('file', file);
  let answer: Response;
  try {
    answer = await fetch(`${url}/v1/files`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}` },
      body: form,
    });
  } catch {
    throw new Unreachable(url);
  }
  const json: unknown = await answer.json().catch(() => undefined);
  const fileId = stringAt(json, 'id');
  if (answer.ok && fileId !== undefined) return { kind: 'file', name: file.name, fileId };
  const error = at(json, 'error');
  throw new ApiFailure(answer.status, {
    message: stringAt(error, 'message') ?? `HTTP ${answer.status}`,
    code: stringAt(error, 'code') ?? 'unknown',
    ...optional('docs_url', stringAt(error, 'docs_url')),
    ...optional('request_id', answer.headers.get('x-request-id') ?? undefined),
  });
}

const optional = (name: string, value: string | undefined): Readonly<Record<string, string>> =>
  value === undefined ? {} : { [name]: value };
