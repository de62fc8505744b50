/** Every component in every state, in light and dark, so that a change of one can be looked at. Its words are examples, and in English. */
import { Suspense, lazy, useState } from 'react';
import type { ReactNode } from 'react';

import { ApiFailure } from '../../api/client.ts';
import { Badge } from '../../components/badge.tsx';
import type { Tone } from '../../components/badge.tsx';
import { Button, IconButton } from '../../components/button.tsx';
import { CodeBlock, Id } from '../../components/code.tsx';
import { CopyButton } from '../../components/copy.tsx';
import { ConfirmDialog, Dialog } from '../../components/dialog.tsx';
import { Ending } from '../../components/ending.tsx';
import { endingNames } from '../../components/endings.ts';
import { Count, Money, Time } from '../../components/figures.tsx';
import { Checkbox, Form, FormButtons, MoreFields, Select, TextField } from '../../components/form.tsx';
import * as icons from '../../components/icons.tsx';
import { Menu, MenuItem, MenuLabel, MenuLine } from '../../components/menu.tsx';
import { SecretField } from '../../components/secret-field.tsx';
import { Meter } from '../../components/meter.tsx';
import { Columns, Facts, Page, Panel, Tiles } from '../../components/page.tsx';
import { SearchField } from '../../components/search-field.tsx';
import { EmptyState, ErrorNote, Note, Skeleton } from '../../components/state.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { toast } from '../../components/toast.tsx';
import { Tooltip } from '../../components/tooltip.tsx';
import { formatMoney } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import type { GalleryTexts } from './messages/en.ts';
import styles from './gallery-page.module.css';

const BarChart = lazy(async () => ({ default: (await import('../../components/charts.tsx')).BarChart }));
const AreaChart = lazy(async () => ({ default: (await import('../../components/charts.tsx')).AreaChart }));
const LineChart = lazy(async () => ({ default: (await import('../../components/charts.tsx')).LineChart }));
const Sparkline = lazy(async () => ({ default: (await import('../../components/charts.tsx')).Sparkline }));

const tones: readonly Tone[] = ['plain', 'good', 'warn', 'bad', 'accent'];
const looks = ['plain', 'primary', 'danger', 'quiet'] as const;
/** What people write in names. */
const hostile = `<b onclick="x">${'long'.repeat(12)}</b> \u202Ertl`;
/** The thirtieth of April 2026, so that the page is the same every day. */
const moment = 1_777_507_200;

export default function GalleryPage() {
  const t = useText<GalleryTexts>('gallery');
  return (
    <Page title={t('title')} lead={<code>web/src/components/</code>}>
      <Buttons />
      <States />
      <Figures />
      <Columns>
        <Fields />
        <Texts />
      </Columns>
      <Charts />
      <Rows />
      <Panel title="icons.tsx">
        <Row>
          {Object.entries(icons).map(([name, Icon]) => (
            <span key={name} title={name}>
              <Icon />
            </span>
          ))}
        </Row>
      </Panel>
    </Page>
  );
}

const Row = ({ children }: { readonly children: ReactNode }) => <div className={styles['row']}>{children}</div>;

function Buttons() {
  const [open, setOpen] = useState<'dialog' | 'confirm'>();
  const close = (): void => setOpen(undefined);
  return (
    <Panel title="button.tsx, menu.tsx, dialog.tsx, toast.tsx, tooltip.tsx">
      {looks.map((look) => (
        <Row key={look}>
          <Button look={look}>{look}</Button>
          <Button look={look} small>
            small
          </Button>
          <Button look={look} disabled>
            disabled
          </Button>
          <Button look={look} busy>
            busy
          </Button>
          <IconButton look={look} label={`${look} icon`} icon={<icons.PlusIcon />} />
        </Row>
      ))}
      <Row>
        <Menu trigger={<Button>Menu</Button>}>
          <MenuLabel>Label</MenuLabel>
          <MenuItem>Item</MenuItem>
          <MenuItem checked>Chosen</MenuItem>
          <MenuItem disabled>Disabled</MenuItem>
          <MenuLine />
          <MenuItem danger>Delete</MenuItem>
        </Menu>
        <Button onClick={() => setOpen('dialog')}>Dialog</Button>
        <Button onClick={() => setOpen('confirm')}>Confirm</Button>
        <Button onClick={() => toast('Saved.')}>Toast</Button>
        <Tooltip text="More about it">
          <Button>Tip</Button>
        </Tooltip>
      </Row>
      {open === 'dialog' && (
        <Dialog title="Dialog" onClose={close}>
          <TextField label="Name" hint="Shown in lists." />
        </Dialog>
      )}
      {open === 'confirm' && (
        <ConfirmDialog title="Revoke the key?" action="Revoke" danger onConfirm={close} onClose={close}>
          Requests with it are refused at once.
        </ConfirmDialog>
      )}
    </Panel>
  );
}

const failure = new ApiFailure(402, {
  code: 'insufficient_credits',
  message: 'The balance does not cover the request.',
  docs_url: new URL('/docs/errors/insufficient_credits', location.origin).href,
  request_id: 'req_0123456789ab',
});

function States() {
  return (
    <Panel title="badge.tsx, ending.tsx, state.tsx">
      <Row>
        {tones.map((tone) => (
          <Badge key={tone} tone={tone}>
            {tone}
          </Badge>
        ))}
      </Row>
      <Row>
        {endingNames.map((ending) => (
          <Ending key={ending} of={{ ending, error_code: null }} />
        ))}
        <Ending of={{ ending: 'failed', error_code: 'upstream_error' }} />
      </Row>
      <Note>A note.</Note>
      <Note tone="good">It worked.</Note>
      <Note tone="warn">{hostile}</Note>
      <ErrorNote error={failure} onRetry={() => {}} />
      <ErrorNote error={new Error('Something that has no code.')} />
      <EmptyState title="No keys yet" action={<Button look="primary">Create key</Button>}>
        A key lets a program call the models.
      </EmptyState>
      {/* An example: nothing is loaded. */}
      <div data-example="">
        <Skeleton lines={2} />
      </div>
    </Panel>
  );
}

function Figures() {
  return (
    <Panel title="figures.tsx, page.tsx, meter.tsx">
      <Tiles
        tiles={[
          { name: 'Available', value: <Money microcents={499_999_725n} />, note: 'of a balance of $5.00' },
          { name: 'A request', value: <Money microcents={275n} /> },
          { name: 'Refund', value: <Money microcents={-12_345_000_000n} sign /> },
          { name: 'Tokens', value: <Count value={1_234_567} /> },
        ]}
      />
      <Facts
        facts={[
          ['A moment', <Time key="short" at={moment} />],
          ['To the second', <Time key="full" at={moment} full />],
          ['A day', <Time key="day" at={moment} dateOnly />],
          ['An id', <Id key="id" value="req_0123456789ab" />],
          ['A name', hostile],
        ]}
      />
      {[0, 40, 85, 120].map((spent) => (
        <Meter key={spent} label="Spent of the budget" value={spent} max={100}>
          ${spent}.00 of $100.00
        </Meter>
      ))}
      <Meter label="Spent" value={3} max={null}>
        $3.00, without a budget
      </Meter>
    </Panel>
  );
}

function Fields() {
  return (
    <Panel title="form.tsx">
      <Form label="Fields" onSubmit={() => {}}>
        <TextField label="Name" hint="Shown in lists." defaultValue={hostile} />
        <TextField label="Amount" optional isMoney />
        <SearchField label="Search" hint="A part of a name." value={hostile} onChange={() => {}} />
        <TextField label="Address" error="This is no address." defaultValue="olga@" />
        <TextField label="Locked" disabled defaultValue="cannot be changed" />
        <Select
          label="Role"
          options={[
            { value: 'viewer', text: 'Viewer' },
            { value: 'admin', text: 'Admin' },
          ]}
        />
        <Checkbox label="Zero data retention" hint="Nothing of a request is kept." />
        <MoreFields summary="More">
          <TextField label="Tags" optional />
        </MoreFields>
        <FormButtons>
          <Button>Cancel</Button>
          <Button look="primary">Save</Button>
        </FormButtons>
      </Form>
    </Panel>
  );
}

function Texts() {
  return (
    <Panel title="code.tsx, copy.tsx, tabs.tsx">
      <CodeBlock
        label="A command"
        code={'curl http://localhost:8080/v1/models \\\n  -H "Authorization: Bearer tkh_…"'}
      />
      <CodeBlock label="A long line" wrap code={`tkh_${'0123456789'.repeat(9)}`} />
      <Row>
        <CopyButton text="copied" />
        <CopyButton text="copied" wide look="plain" label="Copy the key" />
        <SecretField value="whsec_shown_once" label="The secret" copyLabel="Copy the secret" />
      </Row>
      <Tabs
        label="Tabs"
        tabs={['curl', 'Python', 'JavaScript'].map((title) => ({ value: title, title, content: <p>{title}</p> }))}
      />
    </Panel>
  );
}

const days = Array.from({ length: 30 }, (_, at) => `${at + 1}`);
const series = ['llama-3.1-8b', 'qwen3-32b', hostile].map((name, one) => ({
  name,
  values: days.map((_, at) => Math.round(1e9 * (1 + Math.sin((at * (one + 2)) / 5)) * (one + 1))),
}));
const money = (value: number): string => formatMoney(Math.round(value));

function Charts() {
  return (
    <Panel title="charts.tsx">
      <Suspense fallback={<Skeleton />}>
        <BarChart title="Spend as bars" labels={days} series={series} format={money} onSelect={() => {}} />
        <AreaChart title="Spend as areas" labels={days} series={series} format={money} />
        <LineChart
          title="Times as lines"
          labels={days}
          series={series.map(({ name, values }, one) => ({
            name,
            values: values.map((value, at) => ((at + one) % 9 === 0 ? Number.NaN : value)),
          }))}
          format={money}
        />
        <BarChart title="Nothing yet" labels={days.slice(0, 7)} series={[{ name: '', values: [] }]} format={money} />
        <Sparkline label="The last 30 days" values={series[0]!.values} />
      </Suspense>
    </Panel>
  );
}

interface Example {
  readonly id: string;
  readonly name: string;
  readonly spent: bigint;
}

const examples: readonly Example[] = [
  { id: 'key_1', name: 'Production', spent: 12_345_678_900n },
  { id: 'key_2', name: hostile, spent: 275n },
];

function Rows() {
  return (
    <Panel title="table.tsx" flush>
      <DataTable
        label="Examples"
        list={wholeList(examples)}
        keyOf={({ id }) => id}
        empty="Nothing"
        columns={[
          { head: 'Name', main: true, cell: ({ name }) => name },
          { head: 'Id', cell: ({ id }) => <code>{id}</code> },
          { head: 'State', cell: () => <Badge tone="good">in use</Badge> },
          { head: 'Spent', number: true, cell: ({ spent }) => <Money microcents={spent} /> },
          {
            head: 'Actions',
            bare: true,
            cell: ({ name }) => <IconButton label={`More: ${name}`} icon={<icons.MoreIcon />} />,
          },
        ]}
      />
    </Panel>
  );
}
