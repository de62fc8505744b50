import { Agent, EnvHttpProxyAgent, type Dispatcher } from 'undici';
import type { FetchLimits } from './download-limits.ts';
import { SourceProblem } from './problem.ts';

/** How files are fetched: through which proxy, and with which limits. The opener closes it. */
export interface HttpAccess {
  readonly dispatcher: Dispatcher;
  readonly limits: FetchLimits;
  close(): Promise<void>;
}

export interface ProxySettings {
  readonly http: string | undefined;
  readonly https: string | undefined;
  readonly except: string | undefined;
}

export function openHttp(proxy: ProxySettings, limits: FetchLimits): HttpAccess {
  const options = {
    connect: { timeout: limits.connectTimeoutMs },
    headersTimeout: limits.idleTimeoutMs,
    bodyTimeout: limits.idleTimeoutMs,
  };
  const direct = proxy.http === undefined && proxy.https === undefined;
  const dispatcher = direct
    ? new Agent(options)
    : new EnvHttpProxyAgent({
        ...options,
        httpProxy: proxy.http ?? '',
        httpsProxy: proxy.https ?? '',
        noProxy: proxy.except ?? '',
      });
  return { dispatcher, limits, close: () => dispatcher.destroy() };
}

export interface HttpRequest {
  readonly headers?: Readonly<Record<string, string>>;
  /** Value of `authorization`; sent to the origin of the first URL only, never along a redirect to another origin. */
  readonly authorization?: string | undefined;
  readonly signal: AbortSignal;
}

export interface HttpAnswer {
  /** The URL after redirects. */
  readonly url: string;
  readonly status: number;
  readonly body: Dispatcher.ResponseData['body'];
  /** The first value of a header. */
  header(name: string): string | undefined;
}

/** Sends a GET and follows a bounded number of redirects. A name and password in the URL become its `authorization`. */
export async function get(http: HttpAccess, address: string, options: HttpRequest): Promise<HttpAnswer> {
  const first = new URL(address);
  const authorization = options.authorization ?? basic(first);
  first.username = first.password = '';
  let url = first;
  for (let redirects = 0; ; redirects++) {
    const answer = await http.dispatcher.request({
      method: 'GET',
      origin: url.origin,
      path: `${url.pathname}${url.search}`,
      signal: options.signal,
      headers: {
        'user-agent': 'tokenhouse',
        'accept-encoding': 'identity',
        ...options.headers,
        ...(authorization !== undefined && url.origin === first.origin ? { authorization } : {}),
      },
    });
    const header = (name: string) => [answer.headers[name]].flat()[0];
    const location = header('location');
    if (answer.statusCode < 300 || answer.statusCode > 399 || location === undefined) {
      return { url: url.href, status: answer.statusCode, body: answer.body, header };
    }
    await answer.body.dump();
    if (redirects >= http.limits.redirectsMax)
      throw new SourceProblem(`more than ${http.limits.redirectsMax} redirects, the last to ${url.host}`);
    url = redirected(url, location);
  }
}

/** Returns the whole body as text, unless it is longer than `bytesMax`. */
export async function textOf(answer: HttpAnswer, bytesMax: number): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of answer.body) {
    bytes += (chunk as Buffer).length;
    if (bytes > bytesMax)
      throw new SourceProblem(`the answer of ${new URL(answer.url).host} is longer than ${bytesMax} bytes`);
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** Describes a status that delivers nothing. */
export function statusInWords(status: number, host: string): string {
  switch (status) {
    case 401:
    case 403:
      return `${host} answers ${status}: the credentials are missing or wrong (HF_TOKEN for a hub)`;
    case 404:
    case 410:
      return `${host} answers ${status}: it does not have the file`;
    case 407:
      return 'the proxy answers 407: it needs credentials in HTTPS_PROXY';
    default:
      return `${host} answers ${status}`;
  }
}

function redirected(from: URL, location: string): URL {
  if (!URL.canParse(location, from.href))
    throw new SourceProblem(`${from.host} redirects to something that is not a URL`);
  const to = new URL(location, from);
  if (to.protocol !== 'https:' && to.protocol !== from.protocol)
    throw new SourceProblem(`${from.host} redirects to ${to.protocol}, which is not safe to follow`);
  to.username = to.password = '';
  return to;
}

function basic({ username, password }: URL): string | undefined {
  if (username === '' && password === '') return undefined;
  return `Basic ${Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64')}`;
}
