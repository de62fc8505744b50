import { Resolver } from 'node:dns';
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

/** Addresses, with a port where it is not 53; empty: those of the system. */
const dnsServers = list(
  text('address of a name server, with a port unless it is 53', { example: '192.0.2.53' }),
  {
    maxItems: 16,
    description: 'name servers that are asked for the hosts of images; those of the system when left out',
    example: ['192.0.2.53'],
  },
  (servers, at, { report }) =>
    servers.map(([index, server]) => {
      try {
        new Resolver().setServers([server]);
      } catch {
        report([...at, index], 'not an address of a name server; write for example 192.0.2.53');
      }
      return server;
    }),
);

export const images = group(
  'images that requests give by their URL',
  {
    fetch: flag('false: none is fetched, images come as data URIs only', { default: true }),
    allow_hosts: allowedHosts(
      'hosts that may be fetched from although they are in a private network, always by https',
      'images.example.lan:8443',
      'images.lan:8443',
    ),
    dns_servers: dnsServers,
  },
  ({ fetch: fetches, allowHosts, ...others }) => ({ fetches, allowedHosts: allowHosts, ...others }),
);

export const webhooks = group(
  'what is sent to addresses that customers name',
  {
    allow_hosts: allowedHosts(
      'hosts that may be sent to although they are in a private network, and without encryption: for development',
      '127.0.0.1:9000',
      '127.0.0.1:9000',
    ),
    disable_after_days: integer(1, 365, 'an endpoint to which nothing has arrived for so many days is disabled', {
      default: 5,
    }),
  },
  ({ allowHosts, disableAfterDays }) => ({
    allowedHosts: allowHosts,
    disableAfterMs: disableAfterDays * 86_400_000,
  }),
);

const smtp = group(
  'the server that takes the mail',
  {
    host: required(
      textLike('^[A-Za-z0-9.:_-]{1,253}$', 'name or address of the server', { example: 'smtp.example.org' }),
    ),
    port: integer(1, 65_535, 'port of the server', { default: 587 }),
    // With `starttls` nothing is sent to a server that does not offer it.
    secure: choice(
      ['starttls', 'tls', 'none'],
      'starttls: encrypted after the first words, or nothing is sent; tls: from the first byte, usually on port 465; none: in the clear',
      { default: 'starttls' },
    ),
    user: text('who we are there; TOKENHOUSE_SMTP_PASSWORD is the password', { example: 'tokenhouse@example.org' }),
  },
  (values, at, { environment: { smtpPassword }, report }) => {
    if (values.user !== undefined && smtpPassword === undefined)
      report([...at, 'user'], 'nobody could sign in there; set the environment variable TOKENHOUSE_SMTP_PASSWORD');
    return { ...values, password: values.user === undefined ? undefined : smtpPassword };
  },
);

export const mail = group(
  'how mail is sent; without smtp it stays in the outbox (tokenhouse mail list)',
  {
    from: textLike(
      '^([^<>@\\x00-\\x1f\\x7f]{1,200} <[^\\s<>@]{1,64}@[^\\s<>@]{1,255}>|[^\\s<>@]{1,64}@[^\\s<>@]{1,255})$',
      'whom mail comes from; needed with smtp',
      { example: 'Tokenhouse <tokenhouse@example.org>' },
    ),
    smtp: optional(smtp),
  },
  (values, at, { report }) => {
    if (values.smtp !== undefined && values.from === undefined)
      report([...at, 'smtp'], 'no server takes mail from nobody; write mail.from: Tokenhouse <tokenhouse@example.org>');
    return values;
  },
);

export type ImagesConfig = ValueOf<typeof images>;
export type SmtpConfig = ValueOf<typeof smtp>;
