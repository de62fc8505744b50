import { Client } from 'undici';
import type { FlavorName } from '../../generation/flavor-names.ts';

const timeoutMs = 3_000;
const bytesMax = 8 * 1024 * 1024;

/** How many requests a server works on, by its own account; `undefined`: this kind of server, or this one, does not tell. */
export async function runningAt(
  flavor: FlavorName,
  { url, apiKey, signal }: { readonly url: string; readonly apiKey: string | undefined; readonly signal: AbortSignal },
): Promise<number | undefined> {
  const { origin, pathname } = new URL(url);
  const client = new Client(origin, {
    connect: { timeout: timeoutMs },
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
  });
  const get = async (path: string): Promise<string | undefined> => {
    const { statusCode, body } = await client.request({
      method: 'GET',
      path: `${pathname.replace(/\/+$/, '').replace(/\/v1$/, '')}${path}`,
      headers: apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` },
      signal,
    });
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of body as AsyncIterable<Uint8Array>) {
      bytes += chunk.length;
      if (bytes > bytesMax) return undefined;
      chunks.push(chunk);
    }
    return statusCode === 200 ? Buffer.concat(chunks).toString() : undefined;
  };
  try {
    if (flavor === 'llama-server') return slotsIn(await get('/slots'));
    if (flavor === 'vllm') return sumOf('vllm:num_requests_running', await get('/metrics'));
    if (flavor === 'sglang') return sumOf('sglang:num_running_reqs', await get('/metrics'));
    return undefined;
  } catch {
    signal.throwIfAborted();
    return undefined;
  } finally {
    await client.destroy();
  }
}

function slotsIn(text: string | undefined): number | undefined {
  const slots: unknown = text === undefined ? undefined : JSON.parse(text);
  if (!Array.isArray(slots)) return undefined;
  return (slots as readonly { readonly is_processing?: unknown }[]).filter((slot) => slot?.is_processing === true)
    .length;
}

/** Of a metric in the format of Prometheus, over all its labels. */
function sumOf(name: string, text: string | undefined): number | undefined {
  const values = (text ?? '')
    .split('\n')
    .filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `))
    .map((line) => Number(line.slice(line.lastIndexOf(' '))));
  return values.length === 0 || values.some(Number.isNaN) ? undefined : values.reduce((sum, value) => sum + value, 0);
}
