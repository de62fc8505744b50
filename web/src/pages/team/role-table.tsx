import { useGet } from '../../api/use-api.ts';
import { CheckIcon } from '../../components/icons.tsx';
import { Panel } from '../../components/page.tsx';
import { Loaded } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import { abilities, roleNames } from './role-texts.ts';
import { roles } from './roles.ts';
import type { TeamTexts } from './messages/en.ts';
import styles from './team.module.css';

/** What each role may do, as the API itself says. */
export function RoleTable() {
  const t = useText<TeamTexts>('team');
  const found = useGet('/v1/roles');
  return (
    <Panel title={t('roles')} flush>
      <Loaded of={found} lines={8}>
        {({ data }) => (
          <div className={styles['roleScroll']} tabIndex={0} role="region" aria-label={t('roles')}>
            <table className={styles['roles']}>
              <thead>
                <tr>
                  <td />
                  {roles.map((role) => (
                    <th key={role} scope="col">
                      <span>{t(roleNames[role])}</span>
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {abilities.map(([text, operation]) => (
                  <tr key={text}>
                    <th scope="row">{t(text)}</th>
                    {roles.map((role) => (
                      <td key={role}>
                        <Mark
                          isAllowed={data.find((one) => one.role === role)?.operations.includes(operation) === true}
                        />
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
      <p className={styles['roleNote']}>{t('roleNote')}</p>
    </Panel>
  );
}

function Mark({ isAllowed }: { readonly isAllowed: boolean }) {
  const t = useText<TeamTexts>('team');
  return isAllowed ? (
    <span className={styles['yes']}>
      <CheckIcon />
      <span className="visually-hidden">{t('yes')}</span>
    </span>
  ) : (
    <span className={styles['no']}>
      <span aria-hidden="true">–</span>
      <span className="visually-hidden">{t('no')}</span>
    </span>
  );
}
