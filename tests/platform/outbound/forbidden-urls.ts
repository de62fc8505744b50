/**
 * Reliability §3.2, forms 1 to 106: URLs that are refused before anything is asked. Names whose address only the network
 * tells, and what servers do, are in fetcher.test.ts.
 */
const hosts = `
127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.0.0.1 0x7f.1 017700000001 0177.0.0.1 0177.0.0.01 127.0.0.1.
127.0.0.1%2e 127。0。0。1 １２７.０.０.１ ①②⑦.⓪.⓪.① 127.127.127.127 127.0.0.1:443
0 0.0.0.0 00000000 0x0 [::]
169.254.169.254 2852039166 0xA9FEA9FE 0xa9.0xfe.0xa9.0xfe 0251.0376.0251.0376 0251.254.43518 [fd00:ec2::254]
100.100.100.200 192.0.0.192 168.63.129.16 metadata.google.internal metadata.google.internal. metadata instance-data
[::1] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [::ffff:0:127.0.0.1] [64:ff9b::7f00:1]
[64:ff9b::169.254.169.254] [64:ff9b:1::a9fe:a9fe] [2002:7f00:1::] [2001:0:7f00:1::] [fe80::1] [fe80::1%25eth0]
[fe80::1%eth0] [fc00::1] [fd12::1] [fec0::1] [ff02::1] [100::1] [2001:db8::1] [5f00::1] [3fff::1]
10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 100.64.0.0 100.127.255.255 192.0.0.0
192.0.0.255 192.0.2.0 192.0.2.255 198.51.100.0 198.51.100.255 203.0.113.0 203.0.113.255 198.18.0.0 198.19.255.255
192.88.99.0 192.88.99.255 224.0.0.0 239.255.255.255 240.0.0.0 255.255.255.254 255.255.255.255
localhost LOCALHOST localhost. foo.localhost ⓛocalhost localhoſt ｌｏｃａｌｈｏｓｔ ip6-localhost host.docker.internal
kubernetes.default.svc intranet printer printer.local
user@127.0.0.1 example.com@127.0.0.1 example.com:80@127.0.0.1:443 127.0.0.1#@example.com 127.0.0.1?@example.com
example.com\\@127.0.0.1 127.0.0.1%00.example.com user@example.com user:password@example.com @example.com :@example.com
example.com:0 example.com:22 example.com:25 example.com:6379 example.com:80 example.com:8443 example.com:99999`;

const whole = [
  'https:127.0.0.1',
  'https:/127.0.0.1',
  'https:\\\\127.0.0.1',
  'https:///127.0.0.1',
  'https:example.com',
  'https:///example.com/a.png',
  'ht\ttps://127.0.0.1/',
  'ht\ntps://example.com/',
  'https://exam\nple.com/',
  ' https://example.com/',
  'https://',
  'https:// /',
  'https://exa mple.com/',
  '',
  'example.com/a.png',
  '//example.com/a.png',
  '/etc/passwd',
  '../a.png',
  'C:\\a.png',
  'http://example.com/a.png',
  'http://127.0.0.1/',
  'file:///etc/passwd',
  'file://localhost/etc/passwd',
  'ftp://example.com/a.png',
  'gopher://127.0.0.1:6379/_x',
  'dict://127.0.0.1:11211/',
  'ldap://127.0.0.1/',
  'ws://example.com/',
  'wss://example.com/',
  'blob:https://example.com/x',
  'javascript:alert(1)',
  'jar:https://example.com!/a.png',
  'view-source:https://example.com/',
  'unix:///var/run/docker.sock',
  `https://example.com/${'a'.repeat(9_000)}`,
];

export const forbiddenUrls: readonly string[] = [
  ...hosts
    .trim()
    .split(/\s+/)
    .map((host) => (/[#?]/.test(host) ? `https://${host}` : `https://${host}/a.png`)),
  ...whole,
];
