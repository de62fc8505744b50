import { Link, useNavigate } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import type { RefCallback } from 'react';

import { mayManage, mayPay, useSession } from '../../api/session.ts';
import { useGet, useList } from '../../api/use-api.ts';
import type { ListResult } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { IconButton, LinkButton } from '../../components/button.tsx';
import { Money, Time } from '../../components/figures.tsx';
import { MoreIcon } from '../../components/icons.tsx';
import { LimitBar } from '../../components/limit.tsx';
import { Menu, MenuItem, MenuLine } from '../../components/menu.tsx';
import { Page, Panel } from '../../components/page.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useNow } from '../../components/use-now.ts';
import { startOfMonth } from '../../format/date.ts';
import { useText } from '../../i18n/text.ts';
import { teamRoute } from './routes.ts';
import { InviteDialog } from './invite.tsx';
import { Invitations } from './invitations.tsx';
import { BudgetDialog, RemoveDialog, RoleDialog } from './member-dialogs.tsx';
import type { Member } from './member-dialogs.tsx';
import { RoleTable } from './role-table.tsx';
import { roleNames } from './role-texts.ts';
import { isAtMost } from './roles.ts';
import { spentByPerson } from './spent.ts';
import type { TeamTexts } from './messages/en.ts';
import styles from './team.module.css';

export default function TeamPage() {
  const t = useText<TeamTexts>('team');
  const { account, may } = useSession();
  const { invite } = teamRoute.useSearch();
  const navigate = teamRoute.useNavigate();
  // Without an account there is nothing to show; the shell says so.
  if (account === undefined) return <Page title={t('title')}>{null}</Page>;
  const manages = may(mayManage);
  const action = manages && (
    <LinkButton look="primary" to="/team" search={{ invite: true } as never}>
      {t('invite')}
    </LinkButton>
  );
  return (
    <Page title={t('title')} lead={t('lead', { account: account.name })} actions={action}>
      <Members />
      {manages && <Invitations />}
      <RoleTable />
      {invite === true && manages && (
        <InviteDialog own={account.role} onClose={() => void navigate({ search: {} as never })} />
      )}
    </Page>
  );
}

/** The row of the person of the URL gets the focus once it is there; pages of the list are loaded until it is. */
function useGoTo(list: ListResult<Member>): (member: Member) => object {
  const { person } = teamRoute.useSearch();
  const { rows, hasMore, isLoadingMore, loadMore } = list;
  const isHere = rows.some(({ id }) => id === person);
  const mustLoad = person !== undefined && !isHere && hasMore && !isLoadingMore;
  useEffect(() => {
    if (mustLoad) loadMore();
    // Its function is another one each time.
  }, [mustLoad, rows.length]);
  return ({ id }) => (id === person ? { tabIndex: -1, 'data-person': '', ref: focused } : {});
}

const focused: RefCallback<HTMLElement> = (element) => {
  element?.focus({ preventScroll: true });
  element?.scrollIntoView({ block: 'center' });
};

/** What each person has spent in this month of the account's zone; undefined: not known (yet). */
function useSpent(): ReadonlyMap<string | null, number> | undefined {
  const now = useNow(60_000);
  const { data: account } = useGet('/v1/account');
  const start = account === undefined ? 0 : startOfMonth(Math.floor(now / 1000), account.time_zone);
  const found = useGet(
    '/v1/usage',
    { query: { start_time: start, group_by: ['user_id'], limit: 32 } },
    { enabled: account !== undefined, every: 15_000, keepPrevious: true },
  );
  return found.data === undefined ? undefined : spentByPerson(found.data);
}

function Members() {
  const t = useText<TeamTexts>('team');
  const { me, account, may } = useSession();
  const list = useList('/v1/members', undefined, { every: 10_000 });
  const goTo = useGoTo(list);
  const spent = useSpent();
  const seesAll = may(mayPay);
  // Not in its row: that is gone before the dialog has said so.
  const [open, setOpen] = useState<OpenDialog>();
  const close = (): void => setOpen(undefined);
  const columns: readonly Column<Member>[] = [
    {
      head: t('person'),
      main: true,
      cell: (member) => (
        <div className={styles['person']} {...goTo(member)}>
          <span className={styles['name']}>
            <bdi>{member.name}</bdi> {member.id === me.id && <Badge tone="accent">{t('you')}</Badge>}
          </span>
          <span className={styles['email']}>{member.email}</span>
        </div>
      ),
    },
    { head: t('role'), cell: ({ role }) => t(roleNames[role]) },
    {
      head: t('lastSignIn'),
      cell: ({ last_sign_in_at: at }) => (at === null ? '–' : <Time at={at} relative />),
    },
    { head: t('joined'), cell: ({ joined_at: at }) => <Time at={at} dateOnly /> },
    {
      head: t('spent'),
      number: true,
      // Others see what their own keys have spent.
      cell: ({ id }) =>
        spent === undefined || (!seesAll && id !== me.id) ? (
          '–'
        ) : (
          <Link to="/usage" search={{ user: id, since: 'month' } as never}>
            <Money microcents={spent.get(id) ?? 0} />
          </Link>
        ),
    },
    {
      head: t('budget'),
      // Null for those of others, where they may not see them.
      cell: (member) => (member.limit_microcents === null ? '–' : <Budget of={member} />),
    },
    { head: t('actions'), bare: true, cell: (member) => <MemberMenu of={member} onOpen={setOpen} /> },
  ];
  return (
    <Panel flush>
      <DataTable
        label={t('members')}
        columns={columns}
        list={list}
        keyOf={({ id }) => id}
        empty={<EmptyState title={t('nobody')} />}
      />
      {list.rows.length === 1 && <p className={styles['only']}>{t('onlyYou')}</p>}
      {open?.what === 'role' && account !== undefined && (
        <RoleDialog of={open.member} own={account.role} onClose={close} />
      )}
      {open?.what === 'budget' && <BudgetDialog of={open.member} onClose={close} />}
      {open?.what === 'remove' && <RemoveDialog of={open.member} isSelf={open.member.id === me.id} onClose={close} />}
    </Panel>
  );
}

function Budget({ of: member }: { readonly of: Member }) {
  const t = useText<TeamTexts>('team');
  return (
    // One cell: on a phone it is beside its title.
    <div>
      <LimitBar of={member} />
      {member.limit_resets_at !== null && (
        <div className={styles['renews']}>
          {t('renews')} <Time at={member.limit_resets_at} dateOnly />
        </div>
      )}
    </div>
  );
}

interface OpenDialog {
  readonly what: 'role' | 'budget' | 'remove';
  readonly member: Member;
}

interface MemberMenuProps {
  readonly of: Member;
  readonly onOpen: (dialog: OpenDialog) => void;
}

function MemberMenu({ of: member, onOpen }: MemberMenuProps) {
  const t = useText<TeamTexts>('team');
  const { me, account, may } = useSession();
  const navigate = useNavigate();
  const isSelf = member.id === me.id;
  const changes = account !== undefined && may(mayManage) && isAtMost(member.role, account.role);
  const seesUsage = isSelf || may(mayPay);
  if (!seesUsage && !changes) return null;
  const go = (to: string, search: object): void => void navigate({ to, search } as never);
  return (
    <Menu trigger={<IconButton small label={t('actionsFor', { name: member.name })} icon={<MoreIcon />} />}>
      {seesUsage && (
        <>
          <MenuItem onSelect={() => go('/requests', { user: member.id })}>{t('requests')}</MenuItem>
          <MenuItem onSelect={() => go('/usage', { user: member.id, since: 'month' })}>{t('usage')}</MenuItem>
          {(isSelf || changes) && <MenuLine />}
        </>
      )}
      {changes && <MenuItem onSelect={() => onOpen({ what: 'role', member })}>{t('changeRole')}</MenuItem>}
      {changes && <MenuItem onSelect={() => onOpen({ what: 'budget', member })}>{t('setBudget')}</MenuItem>}
      {(isSelf || changes) && (
        <MenuItem danger onSelect={() => onOpen({ what: 'remove', member })}>
          {isSelf ? t('leave') : t('remove')}
        </MenuItem>
      )}
    </Menu>
  );
}
