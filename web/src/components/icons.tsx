/** 16 px line icons of our own; they stand beside a text or have a label, so readers of the screen never hear them. */
import type { ComponentType, ReactNode, SVGProps } from 'react';

export type Icon = ComponentType<SVGProps<SVGSVGElement>>;

const icon = (paths: ReactNode): Icon =>
  function LineIcon(props) {
    return (
      <svg
        viewBox="0 0 16 16"
        width="16"
        height="16"
        fill="none"
        stroke="currentColor"
        strokeWidth="1.5"
        strokeLinecap="round"
        strokeLinejoin="round"
        aria-hidden="true"
        {...props}
      >
        {paths}
      </svg>
    );
  };

export const HomeIcon = icon(<path d="M2.5 7.5 8 2.5l5.5 5M4 6.5v7h8v-7" />);
export const StartIcon = icon(<path d="M5 3v10l8-5z" />);
export const KeyIcon = icon(<path d="M8 8a3 3 0 1 1-1-2.2L13.5 6v3h-2v2H9.2L8 9.8M5 8h.01" />);
export const ListIcon = icon(<path d="M5.5 4h8M5.5 8h8M5.5 12h8M2.5 4h.01M2.5 8h.01M2.5 12h.01" />);
export const ChartIcon = icon(<path d="M2.5 13.5h11M4.5 11V8M8 11V4M11.5 11V6" />);
export const CardIcon = icon(<path d="M2 4h12v8.5H2zM2 7h12M4.5 10h2" />);
export const BellIcon = icon(<path d="M4 11V7a4 4 0 0 1 8 0v4l1 1H3zM6.5 14h3" />);
export const PeopleIcon = icon(
  <path d="M6 7.5a2.3 2.3 0 1 0 0-4.6 2.3 2.3 0 0 0 0 4.6M1.8 13.5c.2-2.6 1.8-4 4.2-4s4 1.4 4.2 4M11 3.2a2.2 2.2 0 0 1 0 4.1M12.2 9.8c1.3.6 2 1.9 2 3.7" />,
);
export const SettingsIcon = icon(<path d="M2 4.5h7M12 4.5h2M2 11.5h2M7 11.5h7M10.5 3v3M5.5 10v3" />);
export const ServerIcon = icon(<path d="M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01" />);
export const TagIcon = icon(<path d="M2.5 2.5h5l6 6-5 5-6-6zM5.5 5.5h.01" />);
export const BuildingIcon = icon(<path d="M3 13.5v-11h7v11M10 6h3v7.5M1.5 13.5h13M5.5 5h2M5.5 8h2M5.5 11h2" />);
export const LogIcon = icon(<path d="M4 2h8v12H4zM6 5h4M6 8h4M6 11h2" />);
export const MailIcon = icon(<path d="M2 4h12v8.5H2zM2 4.5l6 4.5 6-4.5" />);
export const ModelIcon = icon(<path d="M8 2 13.5 5v6L8 14l-5.5-3V5zM2.5 5 8 8l5.5-3M8 8v6" />);
export const ChatIcon = icon(<path d="M2.5 3h11v8h-6L4 13.5V11H2.5z" />);
export const SearchIcon = icon(<path d="M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10M14 14l-3.5-3.5" />);
export const CopyIcon = icon(<path d="M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3" />);
export const CheckIcon = icon(<path d="m3 8.5 3.5 3.5L13 4.5" />);
export const CloseIcon = icon(<path d="m3.5 3.5 9 9M12.5 3.5l-9 9" />);
export const ChevronIcon = icon(<path d="m4 6 4 4 4-4" />);
export const MenuIcon = icon(<path d="M2 4h12M2 8h12M2 12h12" />);
export const MoreIcon = icon(<path d="M3.5 8h.01M8 8h.01M12.5 8h.01" strokeWidth="2.5" />);
export const PlusIcon = icon(<path d="M8 3v10M3 8h10" />);
export const WarningIcon = icon(<path d="M8 2 14.5 13.5h-13zM8 6.5v3M8 11.5h.01" />);
export const PersonIcon = icon(
  <path d="M8 8a2.8 2.8 0 1 0 0-5.6A2.8 2.8 0 0 0 8 8M2.8 14c.3-3 2.2-4.5 5.2-4.5s4.9 1.5 5.2 4.5" />,
);
export const BookIcon = icon(
  <path d="M8 4C6.5 2.8 4.5 2.5 2 2.5v10c2.5 0 4.5.3 6 1.5 1.5-1.2 3.5-1.5 6-1.5v-10c-2.5 0-4.5.3-6 1.5v10" />,
);
export const ExternalIcon = icon(<path d="M9 2.5h4.5V7M13.5 2.5 7.5 8.5M11.5 9v4.5h-9v-9H7" />);
