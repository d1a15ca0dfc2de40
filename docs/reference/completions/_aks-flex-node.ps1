
using namespace System.Management.Automation
using namespace System.Management.Automation.Language

Register-ArgumentCompleter -Native -CommandName 'aks-flex-node' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $commandElements = $commandAst.CommandElements
    $command = @(
        'aks-flex-node'
        for ($i = 1; $i -lt $commandElements.Count; $i++) {
            $element = $commandElements[$i]
            if ($element -isnot [StringConstantExpressionAst] -or
                $element.StringConstantType -ne [StringConstantType]::BareWord -or
                $element.Value.StartsWith('-') -or
                $element.Value -eq $wordToComplete) {
                break
        }
        $element.Value
    }) -join ';'

    $completions = @(switch ($command) {
        'aks-flex-node' {
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('start', 'start', [CompletionResultType]::ParameterValue, 'Make this host a node of the cluster that the configuration names; running it again changes nothing')
            [CompletionResult]::new('bootstrap', 'bootstrap', [CompletionResultType]::ParameterValue, 'Make this host a node of the cluster that the configuration names; running it again changes nothing')
            [CompletionResult]::new('status', 'status', [CompletionResultType]::ParameterValue, 'Show what the node is now')
            [CompletionResult]::new('reset', 'reset', [CompletionResultType]::ParameterValue, 'Take everything away that `start` made; the configuration stays')
            [CompletionResult]::new('unbootstrap', 'unbootstrap', [CompletionResultType]::ParameterValue, 'Take everything away that `start` made; the configuration stays')
            [CompletionResult]::new('daemon', 'daemon', [CompletionResultType]::ParameterValue, 'Keep the node: what the agent''s service runs')
            [CompletionResult]::new('agent', 'agent', [CompletionResultType]::ParameterValue, 'Keep the node: what the agent''s service runs')
            [CompletionResult]::new('plan', 'plan', [CompletionResultType]::ParameterValue, 'Print the steps that an operation would run; changes nothing')
            [CompletionResult]::new('bundle', 'bundle', [CompletionResultType]::ParameterValue, 'Pack release files that you have into an offline bundle')
            [CompletionResult]::new('version', 'version', [CompletionResultType]::ParameterValue, 'Print what this program is')
            [CompletionResult]::new('completion', 'completion', [CompletionResultType]::ParameterValue, 'Print a completion script for a shell')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'aks-flex-node;start' {
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'The configuration file; root''s and not readable by others')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'What to wait for at the end [default: ready; a node that only lacks its network plugin then ends well]')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'How long to wait for it, as 90s or 5m')
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;bootstrap' {
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'The configuration file; root''s and not readable by others')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'What to wait for at the end [default: ready; a node that only lacks its network plugin then ends well]')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'How long to wait for it, as 90s or 5m')
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;status' {
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;reset' {
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-y', '-y', [CompletionResultType]::ParameterName, 'Do not ask')
            [CompletionResult]::new('--yes', '--yes', [CompletionResultType]::ParameterName, 'Do not ask')
            [CompletionResult]::new('--keep-images', '--keep-images', [CompletionResultType]::ParameterName, 'Keep /var/lib/containerd with the images in it')
            [CompletionResult]::new('--remove-agent', '--remove-agent', [CompletionResultType]::ParameterName, 'Remove the installed agent too')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;unbootstrap' {
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-y', '-y', [CompletionResultType]::ParameterName, 'Do not ask')
            [CompletionResult]::new('--yes', '--yes', [CompletionResultType]::ParameterName, 'Do not ask')
            [CompletionResult]::new('--keep-images', '--keep-images', [CompletionResultType]::ParameterName, 'Keep /var/lib/containerd with the images in it')
            [CompletionResult]::new('--remove-agent', '--remove-agent', [CompletionResultType]::ParameterName, 'Remove the installed agent too')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;daemon' {
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'The configuration file; root''s and not readable by others')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'aks-flex-node;agent' {
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'The configuration file; root''s and not readable by others')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'aks-flex-node;plan' {
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'The configuration file; root''s and not readable by others')
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;bundle' {
            [CompletionResult]::new('--kubelet', '--kubelet', [CompletionResultType]::ParameterName, 'The kubelet program, or an archive that has it')
            [CompletionResult]::new('--kubectl', '--kubectl', [CompletionResultType]::ParameterName, 'The kubectl program, likewise')
            [CompletionResult]::new('--containerd', '--containerd', [CompletionResultType]::ParameterName, 'containerd: the release''s .tar.gz, or a directory with its programs')
            [CompletionResult]::new('--runc', '--runc', [CompletionResultType]::ParameterName, 'The runc program')
            [CompletionResult]::new('--cni', '--cni', [CompletionResultType]::ParameterName, 'The CNI plugins: the release''s .tgz, or a directory with them')
            [CompletionResult]::new('--crictl', '--crictl', [CompletionResultType]::ParameterName, 'crictl: the release''s .tar.gz, or the program')
            [CompletionResult]::new('--kube-proxy', '--kube-proxy', [CompletionResultType]::ParameterName, 'The kube-proxy program; older agents want it in a bundle, this one does not')
            [CompletionResult]::new('--image', '--image', [CompletionResultType]::ParameterName, 'An image archive as `ctr images export` or `docker save` write it; may be repeated')
            [CompletionResult]::new('--arch', '--arch', [CompletionResultType]::ParameterName, 'The architecture of the files [default: this machine''s]')
            [CompletionResult]::new('--kubernetes-version', '--kubernetes-version', [CompletionResultType]::ParameterName, 'The version of kubelet, kubectl and kube-proxy, where neither file name nor program tells it')
            [CompletionResult]::new('--containerd-version', '--containerd-version', [CompletionResultType]::ParameterName, 'The version of containerd, likewise')
            [CompletionResult]::new('--runc-version', '--runc-version', [CompletionResultType]::ParameterName, 'The version of runc, likewise')
            [CompletionResult]::new('--cni-version', '--cni-version', [CompletionResultType]::ParameterName, 'The version of the CNI plugins, likewise')
            [CompletionResult]::new('--crictl-version', '--crictl-version', [CompletionResultType]::ParameterName, 'The version of crictl, likewise')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'aks-flex-node;version' {
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'aks-flex-node;completion' {
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'aks-flex-node;help' {
            [CompletionResult]::new('start', 'start', [CompletionResultType]::ParameterValue, 'Make this host a node of the cluster that the configuration names; running it again changes nothing')
            [CompletionResult]::new('status', 'status', [CompletionResultType]::ParameterValue, 'Show what the node is now')
            [CompletionResult]::new('reset', 'reset', [CompletionResultType]::ParameterValue, 'Take everything away that `start` made; the configuration stays')
            [CompletionResult]::new('daemon', 'daemon', [CompletionResultType]::ParameterValue, 'Keep the node: what the agent''s service runs')
            [CompletionResult]::new('plan', 'plan', [CompletionResultType]::ParameterValue, 'Print the steps that an operation would run; changes nothing')
            [CompletionResult]::new('bundle', 'bundle', [CompletionResultType]::ParameterValue, 'Pack release files that you have into an offline bundle')
            [CompletionResult]::new('version', 'version', [CompletionResultType]::ParameterValue, 'Print what this program is')
            [CompletionResult]::new('completion', 'completion', [CompletionResultType]::ParameterValue, 'Print a completion script for a shell')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'aks-flex-node;help;start' {
            break
        }
        'aks-flex-node;help;status' {
            break
        }
        'aks-flex-node;help;reset' {
            break
        }
        'aks-flex-node;help;daemon' {
            break
        }
        'aks-flex-node;help;plan' {
            break
        }
        'aks-flex-node;help;bundle' {
            break
        }
        'aks-flex-node;help;version' {
            break
        }
        'aks-flex-node;help;completion' {
            break
        }
        'aks-flex-node;help;help' {
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}
