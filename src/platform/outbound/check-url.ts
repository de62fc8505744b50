import { isIPv4 } from 'node:net';
import { ApiError } from '../errors.ts';
import { isGlobalUnicast } from './address.ts';

/** The operator's rules for addresses of images. */
export interface ImageRules {
  /** false: images may only be data URIs. */
  readonly fetches: boolean;
  /** Hosts that may be fetched at any address, written like `URL.host`: lower case, a port unless it is 443. */
  readonly allowedHosts: ReadonlySet<string>;
  /** Names of this service itself, to which no request is sent. */
  readonly ownHosts: ReadonlySet<string>;
}

export interface FetchTarget {
  readonly url: URL;
  /** The host of `url`, without brackets and without a trailing dot. */
  readonly host: string;
  /** Whether the operator has allowed this host, which may then have any address. */
  readonly isAllowed: boolean;
}

/** The fetched object as errors call it, and the types that its server may declare. */
export interface Fetched {
  readonly noun: 'image' | 'document' | 'webhook';
  /** What may be sent instead of a URL. */
  readonly otherwise: string;
  readonly accept: string;
  readonly types: RegExp;
  readonly wanted: string;
}

/** File stores often do not declare a type; the bytes determine it. */
export const fetchedImage: Fetched = {
  noun: 'image',
  otherwise: ', or be a data URI of base64: data:image/png;base64,…',
  accept: 'image/png, image/jpeg, image/webp, image/gif',
  types: /^image\/(png|jpe?g|gif|webp)$|^(application|binary)\/octet-stream$/,
  wanted: 'a PNG, JPEG, WebP or GIF file',
};

export const fetchedDocument: Fetched = {
  noun: 'document',
  otherwise: '',
  accept: 'application/pdf, text/plain, text/markdown, text/csv, application/json',
  types: /^application\/(pdf|json|x-ndjson)$|^text\/[a-z0-9.+-]+$|^(application|binary)\/octet-stream$/,
  wanted: 'a PDF or a text',
};

const urlCharactersMax = 8_192;

/**
 * First gate (reliability §3.2): what a URL itself reveals, before any request. Throws `unsupported_value` with `param: at` for
 * everything but `https://` on port 443 of a host that may be public. Also decides about targets of redirects. `new URL` has
 * folded the spellings of addresses (decimal, octal, hexadecimal, full-width) before they are judged.
 */
export function checkUrl(
  text: string,
  rules: ImageRules,
  at: string,
  what: Pick<Fetched, 'noun' | 'otherwise'> = fetchedImage,
): FetchTarget {
  const refuse = (why: string): ApiError =>
    new ApiError('unsupported_value', `The ${what.noun} URL ${why}`, { param: at });
  if (!/^https:\/\//i.test(text)) throw refuse(`must begin with https://${what.otherwise}.`);
  if (!rules.fetches) throw refuse('cannot be used: this service does not fetch URLs. Send a base64 data URI.');
  if (text.length > urlCharactersMax) throw refuse(`is longer than ${urlCharactersMax} characters.`);
  // A parser that drops or converts these reads a different address from the one written.
  if (/[\u0000-\u001f\u007f\\]/.test(text)) throw refuse('contains control characters or backslashes.');
  const authority = /^https:\/\/([^/?#]*)/i.exec(text)?.[1] ?? '';
  if (authority === '' || !URL.canParse(text)) throw refuse('is not a URL.');
  if (authority.includes('@')) throw refuse('must not contain a user name or password.');
  if (authority.includes('%')) throw refuse('must not have percent escapes in its host.');
  const url = new URL(text);
  const host = url.hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '');
  if (rules.allowedHosts.has(url.host.replace(/\.(?=$|:\d+$)/, ''))) return { url, host, isAllowed: true };
  // Other ports belong to services that are not public, and would make us a port scanner.
  if (url.port !== '') throw refuse('must use port 443.');
  const isLiteral = url.hostname.startsWith('[') || isIPv4(host);
  if (isLiteral ? !isGlobalUnicast(host) : isLocalName(host)) throw refuse('points at a private network.');
  if (rules.ownHosts.has(host)) throw refuse('points at this service.');
  return { url, host, isAllowed: false };
}

/** Names of local hosts on any network; all others are checked when resolved. */
const localSuffixes =
  /(^|\.)(localhost|localdomain|local|internal|intranet|private|corp|home|lan|svc|onion|home\.arpa)$/;

const isLocalName = (host: string): boolean => !host.includes('.') || localSuffixes.test(host);
