import * as DropdownMenu from 'radix-ui/dropdown-menu';
import { use } from 'react';
import type { ReactNode } from 'react';

import { classes } from './classes.ts';
import { FloatingHome } from './dialog.tsx';
import { CheckIcon } from './icons.tsx';
import styles from './menu.module.css';

interface MenuProps {
  /** A button. */
  readonly trigger: ReactNode;
  readonly align?: 'start' | 'end';
  readonly children: ReactNode;
}

/** Not modal: what locks the page behind it writes styles into the page, which the security policy forbids. */
export function Menu({ trigger, align = 'end', children }: MenuProps) {
  const home = use(FloatingHome);
  return (
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
      <DropdownMenu.Portal container={home}>
        <DropdownMenu.Content className={styles['menu']} align={align} sideOffset={4} collisionPadding={8}>
          {children}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}

interface MenuItemProps {
  readonly onSelect?: () => void;
  readonly danger?: boolean;
  readonly disabled?: boolean;
  /** Shows a mark: one of several that is chosen. */
  readonly checked?: boolean;
  readonly children: ReactNode;
}

export function MenuItem({ onSelect, danger, disabled = false, checked, children }: MenuItemProps) {
  const className = classes(styles['item'], danger === true && styles['danger']);
  if (checked !== undefined)
    return (
      <DropdownMenu.CheckboxItem
        className={className}
        checked={checked}
        disabled={disabled}
        onSelect={() => onSelect?.()}
      >
        <span className={styles['check']}>{checked && <CheckIcon />}</span>
        {children}
      </DropdownMenu.CheckboxItem>
    );
  return (
    <DropdownMenu.Item className={className} disabled={disabled} onSelect={() => onSelect?.()}>
      {children}
    </DropdownMenu.Item>
  );
}

/** An item that is a link: its child. */
export const MenuLink = ({ children }: { readonly children: ReactNode }) => (
  <DropdownMenu.Item className={styles['item']} asChild>
    {children}
  </DropdownMenu.Item>
);

export const MenuLabel = ({ children }: { readonly children: ReactNode }) => (
  <DropdownMenu.Label className={styles['label']}>{children}</DropdownMenu.Label>
);
export const MenuLine = () => <DropdownMenu.Separator className={styles['line']} />;
