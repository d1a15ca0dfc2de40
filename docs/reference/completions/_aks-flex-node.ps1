
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
            [CompletionResult]::new('upgrade', 'upgrade', [CompletionResultType]::ParameterValue, 'Bring the node to what the configuration says, and back by itself when that does not come up')
            [CompletionResult]::new('rollback', 'rollback', [CompletionResultType]::ParameterValue, 'Go back to the version that ran before, or to another one that is installed')
            [CompletionResult]::new('restart', 'restart', [CompletionResultType]::ParameterValue, 'Restart containerd and kubelet; pods are left alone')
            [CompletionResult]::new('stop', 'stop', [CompletionResultType]::ParameterValue, 'Stop containerd and kubelet until `start-node`; a reboot does not start them')
            [CompletionResult]::new('start-node', 'start-node', [CompletionResultType]::ParameterValue, 'Start containerd and kubelet after a `stop`')
            [CompletionResult]::new('slots', 'slots', [CompletionResultType]::ParameterValue, 'The installed versions')
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
        'aks-flex-node;upgrade' {
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'The configuration file; root''s and not readable by others')
            [CompletionResult]::new('--to-config', '--to-config', [CompletionResultType]::ParameterName, 'Go to what this file says; the configuration stays as it is')
            [CompletionResult]::new('--to-version', '--to-version', [CompletionResultType]::ParameterName, 'Go to this Kubernetes version with everything else as it runs now')
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-y', '-y', [CompletionResultType]::ParameterName, 'Do not ask, neither before an older version nor before a goal that a person went back from')
            [CompletionResult]::new('--yes', '--yes', [CompletionResultType]::ParameterName, 'Do not ask, neither before an older version nor before a goal that a person went back from')
            [CompletionResult]::new('--retry', '--retry', [CompletionResultType]::ParameterName, 'Try a goal again that failed')
            [CompletionResult]::new('--without-rollback', '--without-rollback', [CompletionResultType]::ParameterName, 'Go on although the version that runs is damaged: a failure then leaves the new version as it is')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;rollback' {
            [CompletionResult]::new('--to', '--to', [CompletionResultType]::ParameterName, 'The version to go to, as `slots list` names it [default: the one that ran before]')
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-y', '-y', [CompletionResultType]::ParameterName, 'Do not ask')
            [CompletionResult]::new('--yes', '--yes', [CompletionResultType]::ParameterName, 'Do not ask')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;restart' {
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;stop' {
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;start-node' {
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;slots' {
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'Show them with their sizes')
            [CompletionResult]::new('prune', 'prune', [CompletionResultType]::ParameterValue, 'Remove all but the active one, the one before it, what still runs, and one more')
            [CompletionResult]::new('repair', 'repair', [CompletionResultType]::ParameterValue, 'Put the files of a damaged or incomplete version right from the artifact source; what runs goes on running')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'aks-flex-node;slots;list' {
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;slots;prune' {
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;slots;repair' {
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'The configuration file; root''s and not readable by others')
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'aks-flex-node;slots;help' {
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'Show them with their sizes')
            [CompletionResult]::new('prune', 'prune', [CompletionResultType]::ParameterValue, 'Remove all but the active one, the one before it, what still runs, and one more')
            [CompletionResult]::new('repair', 'repair', [CompletionResultType]::ParameterValue, 'Put the files of a damaged or incomplete version right from the artifact source; what runs goes on running')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'aks-flex-node;slots;help;list' {
            break
        }
        'aks-flex-node;slots;help;prune' {
            break
        }
        'aks-flex-node;slots;help;repair' {
            break
        }
        'aks-flex-node;slots;help;help' {
            break
        }
        'aks-flex-node;reset' {
            [CompletionResult]::new('--kubeconfig', '--kubeconfig', [CompletionResultType]::ParameterName, 'Delete the Node from the cluster too, with this kubeconfig; root''s and not readable by others')
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
            [CompletionResult]::new('--kubeconfig', '--kubeconfig', [CompletionResultType]::ParameterName, 'Delete the Node from the cluster too, with this kubeconfig; root''s and not readable by others')
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
            [CompletionResult]::new('--to-config', '--to-config', [CompletionResultType]::ParameterName, 'For `upgrade`: to what this file says')
            [CompletionResult]::new('--to-version', '--to-version', [CompletionResultType]::ParameterName, 'For `upgrade`: to this Kubernetes version with everything else as it runs now')
            [CompletionResult]::new('--to', '--to', [CompletionResultType]::ParameterName, 'For `rollback`: to this version, as `slots list` names it')
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Text for people, or JSON for programs')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says')
            [CompletionResult]::new('--without-rollback', '--without-rollback', [CompletionResultType]::ParameterName, 'For `upgrade`: without the way back')
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
            [CompletionResult]::new('upgrade', 'upgrade', [CompletionResultType]::ParameterValue, 'Bring the node to what the configuration says, and back by itself when that does not come up')
            [CompletionResult]::new('rollback', 'rollback', [CompletionResultType]::ParameterValue, 'Go back to the version that ran before, or to another one that is installed')
            [CompletionResult]::new('restart', 'restart', [CompletionResultType]::ParameterValue, 'Restart containerd and kubelet; pods are left alone')
            [CompletionResult]::new('stop', 'stop', [CompletionResultType]::ParameterValue, 'Stop containerd and kubelet until `start-node`; a reboot does not start them')
            [CompletionResult]::new('start-node', 'start-node', [CompletionResultType]::ParameterValue, 'Start containerd and kubelet after a `stop`')
            [CompletionResult]::new('slots', 'slots', [CompletionResultType]::ParameterValue, 'The installed versions')
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
        'aks-flex-node;help;upgrade' {
            break
        }
        'aks-flex-node;help;rollback' {
            break
        }
        'aks-flex-node;help;restart' {
            break
        }
        'aks-flex-node;help;stop' {
            break
        }
        'aks-flex-node;help;start-node' {
            break
        }
        'aks-flex-node;help;slots' {
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'Show them with their sizes')
            [CompletionResult]::new('prune', 'prune', [CompletionResultType]::ParameterValue, 'Remove all but the active one, the one before it, what still runs, and one more')
            [CompletionResult]::new('repair', 'repair', [CompletionResultType]::ParameterValue, 'Put the files of a damaged or incomplete version right from the artifact source; what runs goes on running')
            break
        }
        'aks-flex-node;help;slots;list' {
            break
        }
        'aks-flex-node;help;slots;prune' {
            break
        }
        'aks-flex-node;help;slots;repair' {
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
