import {
  choice,
  flag,
  group,
  integer,
  list,
  optional,
  required,
  text,
  textLike,
  type Setting,
  type ValueOf,
} from '../setting.ts';
import { dnsServers } from './dns-servers.ts';

/** Hosts that may have any address, in the format of `URL.host` for `https`: lower case, and a port unless it is 443. */
const allowedHosts = (description: string, example: string, exampleInMessages: string): Setting<readonly string[]> =>
  list(
    text('a host, with a port unless it is 443', { example }),
    { maxItems: 1000, description, example: [example] },
    (hosts, at, { report }) =>
      hosts.flatMap(([index, host]) => {
        const url = URL.canParse(`https://${host}/`) ? new URL(`https://${host}/`) : undefined;
        if (url !== undefined && /^[^/?#@\\]+$/.test(host)) return [url.host.replace(/\.(?=$|:\d+$)/, '')];
        report([...at, index], `not a host; write its name or address alone, such as ${exampleInMessages}`);
        return [];
      }),
  );

export const images = group(
  'images that requests reference by URL',
  {
    fetch: flag('false: no image is fetched, only data URIs are accepted', { default: true }),
    allow_hosts: allowedHosts(
      'hosts in a private network that may be fetched from, always by https',
      'images.example.lan:8443',
      'images.lan:8443',
    ),
    dns_servers: dnsServers('name servers for the hosts of images; those of the system when left out'),
  },
  ({ fetch: fetches, allowHosts, ...others }) => ({ fetches, allowedHosts: allowHosts, ...others }),
);

export const webhooks = group(
  'notifications to addresses of customers',
  {
    allow_hosts: allowedHosts(
      'hosts in a private network that webhooks may be sent to, even without encryption: for development',
      '127.0.0.1:9000',
      '127.0.0.1:9000',
    ),
    disable_after_days: integer(1, 365, 'an endpoint is disabled after this many days without a successful delivery', {
      default: 5,
    }),
  },
  ({ allowHosts, disableAfterDays }) => ({
    allowedHosts: allowHosts,
    disableAfterMs: disableAfterDays * 86_400_000,
  }),
);

const smtp = group(
  'the mail server',
  {
    host: required(
      textLike('^[A-Za-z0-9.:_-]{1,253}$', 'name or address of the server', { example: 'smtp.example.org' }),
    ),
    port: integer(1, 65_535, 'port of the server', { default: 587 }),
    // With `starttls` nothing is sent to a server that does not offer it.
    secure: choice(
      ['starttls', 'tls', 'none'],
      'starttls: upgrades to encryption, or sends nothing; tls: encrypted from the first byte, usually on port 465; none: unencrypted',
      { default: 'starttls' },
    ),
    user: text('user name at the mail server; the password is in TOKENHOUSE_SMTP_PASSWORD', {
      example: 'tokenhouse@example.org',
    }),
  },
  (values, at, { environment: { smtpPassword }, report }) => {
    if (values.user !== undefined && smtpPassword === undefined)
      report(
        [...at, 'user'],
        'the mail server needs a password; set the environment variable TOKENHOUSE_SMTP_PASSWORD',
      );
    return { ...values, password: values.user === undefined ? undefined : smtpPassword };
  },
);

export const mail = group(
  'how mail is sent; without smtp it stays in the outbox (tokenhouse mail list)',
  {
    from: textLike(
      '^([^<>@\\x00-\\x1f\\x7f]{1,200} <[^\\s<>@]{1,64}@[^\\s<>@]{1,255}>|[^\\s<>@]{1,64}@[^\\s<>@]{1,255})$',
      'sender of mail; required with smtp',
      { example: 'Tokenhouse <tokenhouse@example.org>' },
    ),
    smtp: optional(smtp),
  },
  (values, at, { report }) => {
    if (values.smtp !== undefined && values.from === undefined)
      report([...at, 'smtp'], 'mail needs a sender; write mail.from: Tokenhouse <tokenhouse@example.org>');
    return values;
  },
);

export type SmtpConfig = ValueOf<typeof smtp>;
